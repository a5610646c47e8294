"""Facts that are stored as JSON: dataclasses whose fields say what they may hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from math import isfinite
from pathlib import PurePath
from typing import Any

import numpy as np

from batchplan.errors import InputError


def fact(expected: str, holds: Callable[[Any], bool], **default: Any) -> Any:
    """A field of a dataclass of facts.

    Args:
        expected: what it holds, for messages.
        holds: whether a plain JSON value is that.
        default: ``default`` or ``default_factory``, as of `dataclasses.field`.
    """
    return dataclasses.field(metadata={"expected": expected, "holds": holds}, **default)


def integer(least: int, **default: Any) -> Any:
    """A field that holds an int64 of ``least`` or more."""
    return fact(f"an integer of {least} or more", lambda v: is_int(v, least), **default)


def choice(known: tuple[str, ...], **default: Any) -> Any:
    """A field that holds one of these texts."""
    return fact(f"one of {', '.join(known)}", lambda v: v in known, **default)


def is_int(value: object, least: int) -> bool:
    """Whether it is an integer (no bool) of ``least`` or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def settle(facts: Any) -> None:
    """Turn the fields of a frozen dataclass into plain JSON values, and check them.

    Raises:
        InputError: names the first field that does not hold what it should.
    """
    for field in dataclasses.fields(facts):
        value = _plain(getattr(facts, field.name), field.name)
        if not field.metadata["holds"](value):
            raise InputError(
                f"{field.name}: got {value!r:.80}, expected {field.metadata['expected']}"
            )
        object.__setattr__(facts, field.name, value)


def _plain(value: Any, name: str) -> Any:
    """The value as JSON holds it, so that a plan equals what is loaded back from its file."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, PurePath):
        return _text(str(value))
    if isinstance(value, Mapping):
        return {
            _text(str(key)): _plain(value[key], f"{name}.{key}") for key in sorted(value, key=str)
        }
    if isinstance(value, list | tuple):
        return [_plain(part, name) for part in value]
    raise InputError(f"{name}: got a {type(value).__name__}, expected a value that JSON can hold")


def _text(value: str) -> str:
    """The text with half surrogate pairs spelled out: names of files hold them, files cannot."""
    return value if value.isascii() else value.encode(errors="backslashreplace").decode()
