"""Dataclasses of options: fields that the command line shows, and checks of their values."""

import dataclasses
from dataclasses import dataclass
from functools import cache
from math import isfinite, isnan
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from batchplan.errors import InputError

MIN_TEMPERATURE = 1e-6  # below it float32 similarities over the temperature are only noise

Kind = Literal["path", "column"]
Similarity = Literal["cosine", "dot"]
Tail = Literal["keep", "drop", "pad"]
BatchOrder = Literal["planned", "shuffled"]
Scope = Literal["device", "global"]

_UNIONS = (UnionType, Union)  # what a Literal or None is depends on the version of Python
LIMITS = ("relative_margin", "absolute_margin", "max_score")  # on the similarity of negatives


@dataclass(frozen=True)
class Range:
    """The numbers that an option takes; see `option`."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    finite: bool = True

    def holds(self, value: float) -> bool:
        """Whether it holds ``value``; NaN is in no range."""
        whole = isinstance(value, Integral)  # which may be more than a float can hold
        return (
            (whole or isfinite(value) or (not self.finite and not isnan(value)))
            and (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )

    def __str__(self) -> str:
        """As help shows it, such as ``0<=x<1``; nothing where there are no limits."""
        low = f"{self.ge:g}<=" if self.ge is not None else ""
        low = f"{self.gt:g}<" if self.gt is not None else low
        high = f"<={self.le:g}" if self.le is not None else ""
        high = f"<{self.lt:g}" if self.lt is not None else high
        if low and not high:
            return f"x>={self.ge:g}" if self.ge is not None else f"x>{self.gt:g}"
        return f"{low}x{high}" if low or high else ""

    def spelled(self) -> str:
        """In words, after "a number"; nothing where there are no limits."""
        if self.ge is not None and self.le is not None:
            return f" from {self.ge:g} to {self.le:g}"
        words = {"of at least": self.ge, "above": self.gt, "at most": self.le, "below": self.lt}
        limits = [f"{word} {limit:g}" for word, limit in words.items() if limit is not None]
        return " " + " and ".join(limits) if limits else ""


def option(
    default: Any,
    help: str,  # noqa: A002  (as in typer)
    *flags: str,
    kind: Kind | None = None,
    metavar: str | None = None,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    finite: bool = True,
) -> Any:
    """A dataclass field that the command line shows, as ``flags`` or as ``--its-name``; likewise
    the default of a command's parameter.

    Args:
        default: its value where none is given.
        help: a sentence or two.
        flags: how it is spelled on the command line.
        kind: what its text names, if it names something that is read: a ``path`` of a file, which
            no output may then overwrite, or a ``column`` of the data. A plan depends on what is
            there, and `compare` makes it again after that changed.
        metavar: what help calls its value, where that follows neither from its type nor its kind.
        ge, gt, le, lt: the range of a number: at least, above, at most, below. `check_options`
            holds it, and help shows it.
        finite: whether a number must be finite; NaN is never taken.
    """
    limits = Range(ge, gt, le, lt, finite)
    metavar = metavar or {"path": "FILE", "column": "COLUMN", None: None}[kind]
    shown = {"help": help, "flags": flags, "kind": kind, "metavar": metavar, "range": limits}
    return dataclasses.field(default=default, metadata=shown)


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


def temperature_option() -> Any:
    """The option ``temperature``, which everything that looks at a loss has."""
    return option(0.05, "Temperature of the NT-Xent loss.", ge=MIN_TEMPERATURE)


def check_options(options: Any) -> None:
    """Require that each field of a dataclass holds what its annotation says: bool, int, float,
    str, a Literal, a list or a dict of these, or one of these or None, and that numbers are in
    their range.
    Integers pass for floats, NumPy numbers for Python's, tuples for lists.

    Raises:
        InputError: names the field, what it got and what it expected.
    """
    kind: type = type(options)
    hints = _hints(kind)
    for field in dataclasses.fields(options):
        value, hint = getattr(options, field.name), hints[field.name]
        label = field.name.replace("_", " ")
        if not _fits(value, hint):
            raise InputError(f"{label}: got {value!r:.80}, expected {_spell(hint)}")
        limits = field.metadata.get("range")
        if limits and isinstance(value, Real) and not limits.holds(value):
            whole = isinstance(value, Integral) or not limits.finite
            number = "a number" if whole else "a finite number"
            usual = "" if field.default is None else f"; the default is {field.default}"
            raise InputError(
                f"{label}: got {value!s:.80}, expected {number}{limits.spelled()}{usual}"
            )


def check_one_limit(options: object) -> list[str]:
    """The limits that are given, as words for messages; at most one may be.

    Raises:
        InputError: names the first two that are.
    """
    given = [(name.replace("_", " "), getattr(options, name)) for name in LIMITS]
    limits = [f"{label} {value}" for label, value in given if value is not None]
    if len(limits) > 1:
        raise InputError(
            f"{limits[0]}: given with {limits[1]}, expected one limit; leave out one of the two"
        )
    return limits


def check_names(given: Any, known: type, what: str) -> None:
    """Require that keyword arguments are fields of a dataclass of options.

    Raises:
        InputError: names the first that is none, and the fields there are.
    """
    fields = [field.name for field in dataclasses.fields(known)]
    for name in given:
        if name not in fields:
            raise InputError(f"{what}: no option {name!r}, expected {', '.join(fields)}")


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Read once, for that takes longer than the checks."""
    return get_type_hints(kind)


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if get_origin(hint) in _UNIONS:
        return any(_fits(value, one) for one in get_args(hint))
    if get_origin(hint) is list:
        return isinstance(value, list | tuple) and all(_fits(one, *get_args(hint)) for one in value)
    if get_origin(hint) is dict:
        inner = get_args(hint)[1]
        return isinstance(value, dict) and all(_fits(one, inner) for one in value.values())
    if hint is Any:
        return True
    if hint in (int, float):
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    return isinstance(value, hint)


def _spell(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(get_args(hint))
    if get_origin(hint) in _UNIONS:
        return " or ".join(_spell(one) for one in get_args(hint))
    if get_origin(hint) is list:
        return f"a list of {_spell(*get_args(hint))}"
    if get_origin(hint) is dict:
        return (
            "a mapping" if get_args(hint)[1] is Any else f"a mapping to {_spell(get_args(hint)[1])}"
        )
    names = {int: "an integer", float: "a number", bool: "True or False", NoneType: "None"}
    return names.get(hint, "text")


@dataclass(frozen=True, kw_only=True)
class SimilarityOptions:
    """The option that all options have; others are added by subclasses, also by several at once.

    Raises:
        InputError: a value that is not of an option's type or choices.
    """

    similarity: Similarity = option(
        "cosine", "Similarity of two rows. cosine normalises them; dot does not."
    )

    def __post_init__(self) -> None:
        check_options(self)
