"""Parses untrusted JSON and TOML into values that are safe to print, compare and store."""

import json
import tomllib
from collections.abc import Callable
from math import isfinite
from typing import Any

_DEEPEST = 64  # levels of lists and objects; our own documents have four


def parse_json(data: bytes, *, any_text: bool = False) -> Any:
    """The value of a JSON document.

    Args:
        data: JSON in UTF-8, UTF-16 or UTF-32.
        any_text: whether strings may hold half a surrogate pair, as file names in Python may.

    Raises:
        ValueError: the bytes are not JSON, hold NaN, a number too large for a float or half a
            surrogate pair, or have more than 64 levels.
    """
    value = _parse(lambda: json.loads(data, parse_constant=_refuse, parse_float=_finite))
    if not any_text:
        _check_text(value, "")
    return value


def parse_toml(data: bytes) -> dict[str, Any]:
    """The tables of a TOML document.

    Raises:
        ValueError: the bytes are not TOML, or have more than 64 levels.
    """
    tables: dict[str, Any] = _parse(lambda: tomllib.loads(data.decode()))
    return tables


def _parse(parse: Callable[[], Any]) -> Any:
    try:
        value = parse()
    except RecursionError:
        raise ValueError(f"more than {_DEEPEST} levels") from None
    if isinstance(value, dict | list):
        _check_levels(value)
    return value


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise ValueError(f"{digits:.40} is too large for a float")
    return value


def _check_levels(value: Any, level: int = 0) -> None:
    if level > _DEEPEST:
        raise ValueError(f"more than {_DEEPEST} levels")
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            _check_levels(inner, level + 1)


def _check_text(value: Any, where: str) -> None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            place = f"{where}: " if where else ""
            raise ValueError(f"{place}{value!r:.40} holds half a surrogate pair") from None
    elif isinstance(value, dict):
        for key, inner in value.items():
            _check_text(key, where)
            _check_text(inner, f"{where}.{key:.40}" if where else f"{key:.40}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            if isinstance(inner, str | dict | list):  # lists of numbers may be long
                _check_text(inner, f"{where}[{number}]")
