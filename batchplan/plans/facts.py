"""Dataclasses of facts that are stored as JSON."""

import dataclasses
from collections.abc import Mapping
from math import isfinite
from pathlib import PurePath
from typing import Any

import numpy as np

from batchplan.errors import InputError, OptionError
from batchplan.options import check_options


def settle(facts: Any) -> None:
    """Turn the fields of a frozen dataclass into JSON values, and check them.

    Raises:
        InputError: a value that JSON cannot hold, or as `check_options`.
    """
    for field in dataclasses.fields(facts):
        object.__setattr__(facts, field.name, _plain(getattr(facts, field.name), field.name))
    try:
        check_options(facts)
    except OptionError as error:  # these are no options: a file may be their source
        raise InputError(error) from None


def _plain(value: Any, name: str) -> Any:
    """Return the value as JSON can hold it, so that a plan equals the one loaded from its file."""
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
        return [_plain(item, name) for item in value]
    raise InputError(f"{name}: got a {type(value).__name__}, expected a value that JSON can hold")


def _text(value: str) -> str:
    """Return the text with half surrogate pairs escaped: file names may have them, UTF-8 cannot."""
    return value if value.isascii() else value.encode(errors="backslashreplace").decode()
