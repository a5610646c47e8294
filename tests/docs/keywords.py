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
from batchplan.planners.common.options import PlannerOptions
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

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from batchplan.runtime import Observer


class RuntimeKeywords(TypedDict, total=False):
    """How a function runs, see `batchplan.Runtime`."""

    seed: int
    device: str
    memory: int | str | None
    observer: Observer | None


class DataKeywords(RuntimeKeywords, total=False):
    """What the data are, see `batchplan.plan`."""

    negatives: object'''


def kinds() -> list[type]:
    """The dataclasses whose fields are keyword arguments, each after its bases."""
    functions = [EvaluationOptions, RefineOptions, MaterializeOptions, EmbedOptions]
    found: dict[type, None] = {}
    for kind in (*functions, *(planner.options for planner in PLANNERS.values())):
        for one in reversed(kind.__mro__):
            if dataclasses.is_dataclass(one):
                found[one] = None
    return list(found)


def name_of(kind: type) -> str:
    """``GcbsKeywords`` for `GcbsOptions`."""
    return kind.__name__.removesuffix("Options") + "Keywords"


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
    """The text of batchplan/keywords.py.

    A TypedDict cannot change the type of a key, so the first class of a family that has a key
    gives its type.
    """
    lines = [_TOP]
    for kind in kinds():
        bases = [name_of(base) for base in kind.__bases__ if dataclasses.is_dataclass(base)]
        if kind is PlannerOptions:
            bases.append("DataKeywords")
        inherited = {
            name for base in kind.__mro__[1:] for name in vars(base).get("__annotations__", {})
        }
        hints = typing.get_type_hints(kind)
        own = [name for name in vars(kind).get("__annotations__", {}) if name not in inherited]
        lines += [
            "",
            "",
            f"class {name_of(kind)}({', '.join(bases or ['TypedDict'])}, total=False):",
        ]
        lines += [f'    """The fields of `{kind.__name__}`."""']
        lines += [""] * bool(own) + [f"    {name}: {spelled(hints[name])}" for name in own]
    return "\n".join([*lines, *_of_epochs()]) + "\n"


def _of_epochs() -> list[str]:
    """The classes of keywords for `EpochPlans` and what makes them: they plan with any planner, and
    take the same keywords whatever the planner is."""
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
    options = {
        name: " | ".join(sorted(parts, key="None".__eq__))
        for name, parts in types.items()
        if name not in {*own, *_OF_THE_TRAINER}
    }
    return [
        *_class("AnyPlannerKeywords", "TypedDict", "Options of any planner.", options),
        *_class("EpochKeywords", "AnyPlannerKeywords", "The keywords of `EpochPlans`, without "
                "those that a trainer knows.", own),
    ]  # fmt: skip


def _class(name: str, base: str, about: str, types: dict[str, str]) -> list[str]:
    lines = ["", "", f"class {name}({base}, total=False):", f'    """{about}"""', ""]
    return lines + [f"    {key}: {kind}" for key, kind in types.items()]


if __name__ == "__main__":
    MODULE.write_text(module())
