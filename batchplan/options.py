"""Options as fields of dataclasses, which the command line shows and whose values are checked."""

import dataclasses
import inspect
import os
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from math import isfinite, isnan
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from batchplan.errors import OptionError
from batchplan.extras import missing_told
from batchplan.text import check_urls, meant, one_line

MIN_TEMPERATURE = 1e-6  # below it float32 similarities over the temperature are only noise

F = TypeVar("F", bound=Callable[..., Any])
Kind = Literal["path", "column"]
Similarity = Literal["cosine", "dot"]
Tail = Literal["keep", "drop", "pad"]
BatchOrder = Literal["planned", "shuffled"]
Scope = Literal["device", "global"]
ShardOrder = Literal["lexicographic", "natural"]

ROW_COLUMN = "batchplan_row"  # the row numbers of the data, int64, in data sets and in batches
UNIONS = (UnionType, Union)  # the type of "Literal | None" depends on the version of Python
LIMITS = ("relative_margin", "absolute_margin", "max_score")  # on the similarity of negatives
USUAL_ROWS = 16_384  # evenly spaced rows; the median of their positives is the usual positive
MUCH_EXCLUDED = 0.05  # share of all rows; a guard that excludes more also excludes true negatives
USUAL_MARGIN = 0.1  # the default relative margin, for plans and for evaluations


@dataclass(frozen=True)
class Range:
    """The numbers that an option accepts.

    Attributes:
        ge, gt, le, lt: at least, above, at most, below.
        finite: whether a number must be finite; NaN is never accepted.
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    finite: bool = True

    def holds(self, value: float) -> bool:
        """Whether ``value`` is in the range; NaN never is."""
        whole = isinstance(value, Integral)  # it may be too large for a float
        return (
            (whole or isfinite(value) or (not self.finite and not isnan(value)))
            and (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )

    def __str__(self) -> str:
        """The range as help shows it, such as ``0<=x<1``; empty without limits."""
        low = f"{self.ge:g}<=" if self.ge is not None else ""
        low = f"{self.gt:g}<" if self.gt is not None else low
        high = f"<={self.le:g}" if self.le is not None else ""
        high = f"<{self.lt:g}" if self.lt is not None else high
        if low and not high:
            return f"x>={self.ge:g}" if self.ge is not None else f"x>{self.gt:g}"
        return f"{low}x{high}" if low or high else ""

    def spelled(self) -> str:
        """The range in words, after "a number"; empty without limits."""
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
    recorded: bool = True,
    **limits: Any,
) -> Any:
    """Return a dataclass field that the command line shows as ``flags`` or ``--its-name``.

    It can also be the default of a parameter of a command.

    Args:
        default: the default value.
        help: a sentence or two.
        flags: its names on the command line.
        kind: ``path`` for a file that is read, which no output may overwrite; ``column`` for a
            column of the data.
        metavar: the name of the value in help, if its type and kind do not give it.
        recorded: whether plans store its value. They store nothing of where and how fast they were
            made.
        limits: of a number, see `Range`. `check_options` checks them, and help shows them.
    """
    metavar = metavar or {"path": "FILE", "column": "COLUMN", None: None}[kind]
    about = {"help": help, "flags": flags, "kind": kind, "metavar": metavar, "recorded": recorded}
    return dataclasses.field(default=default, metadata={**about, "range": Range(**limits)})


# Of all readers of folders and globs.
SHARD_ORDER: Any = option(
    None,
    "Order of the files in a folder or glob: by the characters of their names, as other readers, "
    "or by number. Needed only if the two differ.",
)


def shown(options: Any) -> dict[str, Any]:
    """Return all options by field, to be shown and stored."""
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    return {name: [*v] if isinstance(v, tuple) else v for name, v in values.items()}


def recorded(options: Any) -> dict[str, Any]:
    """Return the options that a plan stores, as `shown` does."""
    values = shown(options)
    return {
        field.name: values[field.name]
        for field in dataclasses.fields(options)
        if field.metadata.get("recorded", True)
    }


def named_paths(options: Any) -> dict[str, list[str]]:
    """Return the paths that options name, by field."""
    values = {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(options)
        if field.metadata.get("kind") == "path"
    }
    return {
        name: [value] if isinstance(value, str) else list(value)
        for name, value in values.items()
        if value
    }


def paths_of(*groups: Any) -> list[str]:
    """Return all paths in dataclasses of options."""
    return [path for group in groups for paths in named_paths(group).values() for path in paths]


def with_options(kind: type, *, checked: bool = True) -> Callable[[F], F]:
    """Decorate a public function with ``**options``, which are the fields of a dataclass.

    `help` and notebooks show the fields as keyword arguments. Unknown names are refused before the
    function is called, and errors say what installs a missing package.

    Args:
        kind: the dataclass.
        checked: whether to refuse other names. False if the function has more kinds of options.
    """

    def decorate(original: F) -> F:
        signature = inspect.signature(original)

        @missing_told()
        @wraps(original)
        def function(*args: Any, **given: Any) -> Any:
            if checked:
                options = [name for name in given if name not in signature.parameters]
                check_names(options, kind, original.__name__)
            return original(*args, **given)

        shown = [*signature.parameters.values()]
        fields = [one for one in dataclasses.fields(kind) if one.name not in signature.parameters]
        for one in fields:
            default = inspect.Parameter.empty if one.default is dataclasses.MISSING else one.default
            shown.insert(
                -1, inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default)
            )
        function.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        lines = [f"    {one.name}: {one.metadata['help']}" for one in fields]
        about = inspect.cleandoc(function.__doc__ or "")
        function.__doc__ = "\n".join([about, "", f"Options of `{kind.__name__}`:", *lines])
        return cast("F", function)

    return decorate


def temperature_option() -> Any:
    """Return the option ``temperature`` of everything that uses a loss."""
    return option(0.05, "Temperature of the loss that you train with.", ge=MIN_TEMPERATURE)


def check_options(options: Any, names: Container[str] | None = None) -> None:
    """Require that the fields of a dataclass have the types of their annotations and that numbers
    are in their range.

    Types are bool, int, float, str, a Literal, a list or dict of these, or a union of these and
    None. Integers pass as floats, NumPy numbers as Python's, and tuples as lists. No text may be a
    URL with keys. With ``names``, only these fields are checked.

    Raises:
        OptionError: names the field, the value and what was expected.
    """
    kind: type = type(options)
    hints = _hints(kind)
    for field in dataclasses.fields(options):
        if names is not None and field.name not in names:
            continue
        value, hint = getattr(options, field.name), hints[field.name]
        label = field.name.replace("_", " ")
        check_urls(value)
        if not _fits(value, hint):
            got = one_line(f"{value!r:.80}")
            raise OptionError(f"{label}: got {got}, expected {_spell(hint)}")
        limits = field.metadata.get("range")
        if limits and isinstance(value, Real) and not limits.holds(value):
            whole = isinstance(value, Integral) or not limits.finite
            number = "a number" if whole else "a finite number"
            shown = field.default not in (None, dataclasses.MISSING)
            usual = f"; the default is {field.default}" if shown else ""
            raise OptionError(
                f"{label}: got {value!s:.80}, expected {number}{limits.spelled()}{usual}"
            )


def check_one_limit(options: Any, unguarded: str) -> bool:
    """Return whether one of the limits is set.

    Args:
        options: their ``guard`` says whether a limit applies at all.
        unguarded: what ``--no-guard`` does, for messages.

    Raises:
        OptionError: names two limits, or one without a guard.
    """
    values = [(name.replace("_", " "), getattr(options, name)) for name in LIMITS]
    given = [f"{label} {value}" for label, value in values if value is not None]
    if len(given) > 1:
        raise OptionError(
            f"{given[0]}: given with {given[1]}, expected one limit; leave out one of the two"
        )
    if given and not options.guard:
        raise OptionError(
            f"{given[0]}: given with --no-guard, which {unguarded}; leave out one of the two"
        )
    return bool(given)


def check_names(names: Any, known: type, where: str) -> None:
    """Require that keyword arguments are fields of a dataclass of options.

    Raises:
        OptionError: names the first unknown argument, and the fields.
    """
    fields = [field.name for field in dataclasses.fields(known)]
    for name in names:
        if name not in fields:
            hint = meant(name, fields)
            raise OptionError(f"{where}: no option {name!r}, expected {', '.join(fields)}{hint}")


@cache
def _hints(kind: type) -> dict[str, Any]:
    """The annotations; cached, because reading them takes longer than the checks."""
    return get_type_hints(kind)


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if get_origin(hint) in UNIONS:
        return any(_fits(value, kind) for kind in get_args(hint))
    if get_origin(hint) is list:
        inner = get_args(hint)[0]
        return isinstance(value, list | tuple) and all(_fits(item, inner) for item in value)
    if get_origin(hint) is dict:
        inner = get_args(hint)[1]
        return isinstance(value, dict) and all(_fits(item, inner) for item in value.values())
    if hint is Any:
        return True
    if hint in (int, float):
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    return isinstance(value, hint)


_SPELLED = {
    int: "an integer", float: "a number", bool: "True or False", NoneType: "None",
    os.PathLike: "a path", Callable: "a function", Mapping: "a mapping",
}  # fmt: skip


def _spell(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(get_args(hint))
    if get_origin(hint) in UNIONS:
        return " or ".join(map(_spell, get_args(hint)))
    if get_origin(hint) is list:
        return f"a list of {_spell(*get_args(hint))}"
    if get_origin(hint) is dict:
        inner = get_args(hint)[1]
        return "a mapping" if inner is Any else f"a mapping to {_spell(inner)}"
    return _SPELLED.get(hint, "text")


@dataclass(frozen=True, kw_only=True)
class SimilarityOptions:
    """The option of all dataclasses of options. A class may inherit it more than once.

    Raises:
        OptionError: a value is not of the type, or not in the choices or range, of its option.
    """

    similarity: Similarity = option(
        "cosine", "Similarity of two rows. cosine normalises them; dot does not."
    )

    def __post_init__(self) -> None:
        check_options(self)
