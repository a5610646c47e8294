"""Parses untrusted JSON and TOML into values that are safe to print, compare and store."""

import json
import re
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
    text = data.decode()
    if any(part.count(".") > _DEEPEST for part in re.split("[=,\n]", text)):
        raise ValueError(_TOO_DEEP)  # tomllib takes quadratic time for a key of many parts
    return dict(_parse(lambda: tomllib.loads(text), any_text=True))


def _parse(parse: Callable[[], Any], any_text: bool) -> Any:
    try:
        value = parse()
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _check_depth([value], -1)
    if not any_text:
        json.dumps(value, ensure_ascii=False).encode()  # raises an error, which is a ValueError
    return value


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise ValueError(f"{digits:.40} is too large for a float")
    return value


def _check_depth(value: Any, level: int = 0) -> None:
    if level > _DEEPEST:
        raise ValueError(_TOO_DEEP)
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):  # lists of numbers may be long
            _check_depth(inner, level + 1)
