"""Dataclasses of options: fields that the command line shows, and checks of their values."""

from __future__ import annotations

import dataclasses
from math import isfinite
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from batchplan.errors import InputError

MIN_TEMPERATURE = 1e-6  # below it float32 similarities over the temperature are only noise


Kind = Literal["path", "column"]


def option(
    default: Any,
    help: str,  # noqa: A002  (as in typer)
    *flags: str,
    kind: Kind | None = None,
) -> Any:
    """A dataclass field that the command line shows, as ``flags`` or as ``--its-name``.

    Args:
        default: its value where none is given.
        help: a sentence or two.
        flags: how it is spelled on the command line.
        kind: what its text names, if it names something that is read: a ``path`` of a file, which
            no output may then overwrite, or a ``column`` of the data. A plan depends on what is
            there, and `compare` makes it again after that changed.
    """
    return dataclasses.field(default=default, metadata={"help": help, "flags": flags, "kind": kind})


def named(options: Any, kind: Kind) -> dict[str, list[str]]:
    """What the options of this kind name, by field; those that are left out are not in it."""
    given = {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(options)
        if field.metadata.get("kind") == kind
    }
    return {
        name: [value] if isinstance(value, str) else list(value)
        for name, value in given.items()
        if value
    }


def paths_of(*groups: Any) -> list[str]:
    """All paths that dataclasses of options name."""
    return [path for group in groups for paths in named(group, "path").values() for path in paths]


def check_options(options: Any) -> None:
    """Require that each field of a dataclass holds what its annotation says: bool, int, float,
    str, a Literal, a list of these, or one of these or None. Integers pass for floats, NumPy
    numbers for Python's, tuples for lists.

    Raises:
        InputError: names the field, what it got and what it expected.
    """
    for name, hint in get_type_hints(type(options)).items():
        value = getattr(options, name)
        if not _fits(value, hint):
            label = name.replace("_", " ")
            raise InputError(f"{label}: got {value!r}, expected {_spell(hint)}")


def check_temperature(temperature: float) -> None:
    """Require a finite temperature of at least `MIN_TEMPERATURE`.

    Raises:
        InputError: says what it got.
    """
    if not isfinite(temperature) or temperature < MIN_TEMPERATURE:
        raise InputError(
            f"temperature: got {temperature}, expected a finite number of at least "
            f"{MIN_TEMPERATURE:g} (0.05 is common)"
        )


def check_names(given: Any, known: type, what: str) -> None:
    """Require that keyword arguments are fields of a dataclass of options.

    Raises:
        InputError: names the first that is none, and the fields there are.
    """
    fields = [field.name for field in dataclasses.fields(known)]
    for name in given:
        if name not in fields:
            raise InputError(f"{what}: no option {name!r}, expected {', '.join(fields)}")


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if get_origin(hint) is UnionType:
        return any(_fits(value, one) for one in get_args(hint))
    if get_origin(hint) is list:
        return isinstance(value, list | tuple) and all(_fits(one, *get_args(hint)) for one in value)
    if hint in (int, float):
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    return isinstance(value, hint)


def _spell(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(get_args(hint))
    if get_origin(hint) is UnionType:
        return " or ".join(_spell(one) for one in get_args(hint))
    if get_origin(hint) is list:
        return f"a list of {_spell(*get_args(hint))}"
    names = {int: "an integer", float: "a number", bool: "True or False", NoneType: "None"}
    return names.get(hint, "text")
