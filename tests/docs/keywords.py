"""batchplan/keywords.py, made from the dataclasses of options: ``make docs`` runs this."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from types import NoneType

from batchplan.embedding.options import EmbedOptions
from batchplan.materialize.options import MaterializeOptions
from batchplan.options import UNIONS
from batchplan.planners import PLANNERS
from batchplan.quality import EvaluationOptions
from batchplan.refinement.options import RefineOptions
from batchplan.training import EpochPlans

MODULE = Path(__file__).parents[2] / "batchplan" / "keywords.py"

_OF_THE_TRAINER = {"embed", "num_rows", "same", "rank", "world_size"}
_TOP = '''\
"""The keyword arguments of the public functions, for editors and type checkers.

`make docs` generates this file from the dataclasses of options; edit them, not this file.
"""

from collections.abc import Callable
from typing import Literal, TypedDict
'''


def spelled(hint: object) -> str:
    """A type as source text."""
    if typing.get_origin(hint) in UNIONS:
        return " | ".join(map(spelled, typing.get_args(hint)))
    if typing.get_origin(hint) is typing.Literal:
        return "Literal[" + ", ".join(f'"{value}"' for value in typing.get_args(hint)) + "]"
    if typing.get_origin(hint) is Callable:
        return "Callable[..., object]"
    if typing.get_origin(hint) is list:
        return f"list[{spelled(*typing.get_args(hint))}]"
    return "None" if hint is NoneType else hint.__name__


def of_planners() -> tuple[dict[str, str], set[str]]:
    """The types of the options of all planners, joined where planners differ; and the names of
    those that plans of epochs set."""
    types: dict[str, dict[str, None]] = {}
    clocks: set[str] = set()
    for planner in PLANNERS.values():
        clocks |= planner.options().at_epoch(0, 2).keys()
        for name, hint in typing.get_type_hints(planner.options).items():
            types.setdefault(name, {}).update(dict.fromkeys(spelled(hint).split(" | ")))
    joined = {name: " | ".join(sorted(parts, key="None".__eq__)) for name, parts in types.items()}
    return joined, clocks


def module() -> str:
    """The text of batchplan/keywords.py."""
    functions = EvaluationOptions, RefineOptions, MaterializeOptions, EmbedOptions
    options, clocks = of_planners()
    fields = {
        kind: {name: spelled(hint) for name, hint in typing.get_type_hints(kind).items()}
        for kind in functions
    }
    shared = options.items() & fields[EvaluationOptions].items() & fields[RefineOptions].items()
    common = {name: options.pop(name) for name in [*options] if (name, options[name]) in shared}
    about = "The options that planners, `refine` and `evaluate` share."
    parts = [_TOP, _class("CommonKeywords", "TypedDict", about, common)]
    for function, hints in fields.items():
        name = function.__name__.removesuffix("Options") + "Keywords"
        own = {name: kind for name, kind in hints.items() if (name, kind) not in shared}
        base = "CommonKeywords" if len(own) < len(hints) else "TypedDict"
        parts.append(_class(name, base, f"The fields of `{function.__name__}`.", own))
    hints = typing.get_type_hints(EpochPlans.__init__)
    own = {
        name: spelled(hints[name])
        for name, one in inspect.signature(EpochPlans).parameters.items()
        if one.kind is one.KEYWORD_ONLY and name not in _OF_THE_TRAINER
    }
    others = {*own, *_OF_THE_TRAINER, *clocks}
    of_epochs = {name: kind for name, kind in options.items() if name not in others}
    rest = {name: kind for name, kind in options.items() if name not in of_epochs}
    parts += [
        _class("EpochOptionKeywords", "CommonKeywords", "Options of any planner for `EpochPlans`.",
               of_epochs),
        _class("PlannerKeywords", "EpochOptionKeywords", "Options of any planner.", rest),
        _class("EpochKeywords", "EpochOptionKeywords", "The keywords of `EpochPlans`, without "
               "those that a trainer knows.", own),
    ]  # fmt: skip
    return "\n\n".join(parts)


def _class(name: str, base: str, about: str, types: dict[str, str]) -> str:
    lines = [f"class {name}({base}, total=False):", f'    """{about}"""', ""]
    return "\n".join(lines + [f"    {key}: {kind}" for key, kind in types.items()]) + "\n"


if __name__ == "__main__":
    MODULE.write_text(module())
