"""batchplan/keywords.py, made from the dataclasses of options: ``make docs`` runs this."""

from __future__ import annotations

import dataclasses
import inspect
import typing
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

from __future__ import annotations

from typing import Literal, TypedDict'''
_FUNCTIONS = (EvaluationOptions, RefineOptions, MaterializeOptions, EmbedOptions)


def spelled(hint: object) -> str:
    """A type as source text."""
    if typing.get_origin(hint) in UNIONS:
        return " | ".join(map(spelled, typing.get_args(hint)))
    if typing.get_origin(hint) is typing.Literal:
        return "Literal[" + ", ".join(f'"{value}"' for value in typing.get_args(hint)) + "]"
    if typing.get_origin(hint) is list:
        return f"list[{spelled(*typing.get_args(hint))}]"
    return "None" if hint is NoneType else hint.__name__


def module() -> str:
    """The text of batchplan/keywords.py."""
    lines = [_TOP]
    for kind in _FUNCTIONS:
        name, hints = kind.__name__, typing.get_type_hints(kind)
        options = {field.name: spelled(hints[field.name]) for field in dataclasses.fields(kind)}
        lines += _class(f"{name.removesuffix('Options')}Keywords", "TypedDict",
                        f"The fields of `{name}`.", options)  # fmt: skip
    return "\n".join([*lines, *_of_planners()]) + "\n"


def _of_planners() -> list[str]:
    """The options of all planners, whatever the planner is, and the keywords of `EpochPlans`."""
    types: dict[str, list[str]] = {}
    for planner in PLANNERS.values():
        for name, hint in typing.get_type_hints(planner.options).items():
            parts = spelled(hint).split(" | ")
            types[name] = list(dict.fromkeys([*types.get(name, []), *parts]))
    hints = typing.get_type_hints(EpochPlans.__init__)
    own = {
        name: spelled(hints[name])
        for name, one in inspect.signature(EpochPlans).parameters.items()
        if one.kind is one.KEYWORD_ONLY and name not in _OF_THE_TRAINER
    }
    options = {name: " | ".join(sorted(parts, key="None".__eq__)) for name, parts in types.items()}
    taken = {*own, *_OF_THE_TRAINER}
    free = {name: kind for name, kind in options.items() if name not in taken}
    rest = {name: kind for name, kind in options.items() if name in taken}
    return [
        *_class("AnyPlannerKeywords", "TypedDict", "Options of any planner, without those that "
                "`EpochPlans` takes itself.", free),
        *_class("PlanKeywords", "AnyPlannerKeywords", "Options of any planner.", rest),
        *_class("EpochKeywords", "AnyPlannerKeywords", "The keywords of `EpochPlans`, without "
                "those that a trainer knows.", own),
    ]  # fmt: skip


def _class(name: str, base: str, about: str, types: dict[str, str]) -> list[str]:
    lines = ["", "", f"class {name}({base}, total=False):", f'    """{about}"""', ""]
    return lines + [f"    {key}: {kind}" for key, kind in types.items()]


if __name__ == "__main__":
    MODULE.write_text(module())
