"""Parses untrusted JSON and TOML into values that are safe to print, compare and store."""

import json
import tomllib
from collections.abc import Callable
from functools import partial
from math import isfinite
from typing import Any

_DEEPEST = 64  # levels of lists and objects; our own documents have four
_TOO_DEEP = f"more than {_DEEPEST} levels"


def parse_json(data: bytes, *, any_text: bool = False) -> Any:
    """Return the value of a JSON document.

    Args:
        data: JSON in UTF-8, UTF-16 or UTF-32.
        any_text: whether strings may have half a surrogate pair, as file names in Python may.

    Raises:
        ValueError: the bytes are not JSON; or they have NaN, a number too large for a float, half a
            surrogate pair, or more than 64 levels.
    """
    load = partial(json.loads, parse_constant=_refuse, parse_float=_finite)
    return _parse(lambda: load(data), any_text)


def parse_toml(data: bytes) -> dict[str, Any]:
    """Return the tables of a TOML document.

    Raises:
        ValueError: the bytes are not TOML, or have more than 64 levels.
    """
    tables: dict[str, Any] = _parse(lambda: tomllib.loads(data.decode()), any_text=True)
    return tables


def _parse(parse: Callable[[], Any], any_text: bool) -> Any:
    try:
        value = parse()
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _check(value, any_text)
    return value


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise ValueError(f"{digits:.40} is too large for a float")
    return value


def _check(value: Any, any_text: bool, where: str = "", level: int = 0) -> None:
    """Refuse too many levels, and texts that UTF-8 cannot encode; ``where`` is the value's
    place."""
    if isinstance(value, str) and not any_text:
        try:
            value.encode()
        except UnicodeEncodeError:
            place = f"{where}: " if where else ""
            raise ValueError(f"{place}{value!r:.40} holds half a surrogate pair") from None
    if not isinstance(value, dict | list):
        return
    if level > _DEEPEST:
        raise ValueError(_TOO_DEEP)
    if isinstance(value, dict):
        for key, inner in value.items():
            _check(key, any_text, where)
            _check(inner, any_text, f"{where}.{key:.40}" if where else f"{key:.40}", level + 1)
        return
    for number, inner in enumerate(value):
        if isinstance(inner, str | dict | list):  # lists of numbers may be long
            _check(inner, any_text, f"{where}[{number}]", level + 1)
