"""The ranges of the arguments of the training API, and what checks them."""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, TypeVar, cast, get_type_hints

import numpy as np

from batchplan.errors import InputError
from batchplan.options import check_options, option
from batchplan.typing import Int64Array

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Arguments by name, as `EpochPlans` and the other classes describe them."""

    folder: str | os.PathLike = option(None, "")  # type: ignore[type-arg]
    plans: Mapping = option(None, "")  # type: ignore[type-arg]
    state: Mapping = option(None, "")  # type: ignore[type-arg]
    planner: str = option(None, "")
    embed: Callable = option(None, "")  # type: ignore[type-arg]
    predict: Callable | None = option(None, "")  # type: ignore[type-arg]
    same: Callable | None = option(None, "")  # type: ignore[type-arg]
    data: str | None = option(None, "")
    device: str = option("auto", "")
    memory: int | str | None = option(None, "", ge=1)
    embeddings: Literal["fresh", "training"] = option("fresh", "")
    order: Literal["proportional", "round_robin"] | float = option("proportional", "", ge=0, le=1)
    num_rows: int = option(None, "", ge=2)
    row: int = option(None, "", ge=0)
    epoch: int | None = option(None, "", ge=0)
    step: int | None = option(None, "", ge=0)
    steps: int = option(None, "", ge=0)
    position: int = option(None, "", ge=0)
    epochs: float | None = option(None, "", gt=0)
    planned_epochs: int | None = option(None, "", ge=1)
    random_epochs: float | None = option(0, "", ge=0)
    every: int = option(1, "", ge=1)
    keep: int = option(10, "", ge=1)
    seed: int = option(0, "", ge=0)
    rank: int | None = option(None, "", ge=0)
    world_size: int | None = option(None, "", ge=1)
    timeout: float = option(6 * 3600, "", ge=0, finite=False)
    ahead: float | None = option(None, "", gt=0, lt=1)
    alpha: float | None = option(None, "", ge=0, le=1)


_NAMES = get_type_hints(Arguments).keys()


def check_arguments(given: Mapping[str, Any]) -> None:
    """Check the arguments among some that `Arguments` has.

    Raises:
        InputError: names the argument, the value and what was expected.
    """
    known = {name: value for name, value in given.items() if name in _NAMES}
    check_options(Arguments(**known), known)


def checked(function: F) -> F:
    """Decorate a public function: it checks its arguments, and ``**options``, as `check_arguments`
    does."""
    signature = inspect.signature(function)
    usual = {name: one.default for name, one in signature.parameters.items()}

    @wraps(function)
    def checking(*args: Any, **named: Any) -> Any:
        bound = signature.bind(*args, **named).arguments
        given = {**bound, **bound.get("options", {})}.items()
        check_arguments({name: one for name, one in given if one is not usual.get(name, usual)})
        return function(*args, **named)

    return cast("F", checking)


def row_numbers(rows: Any, num_rows: int) -> Int64Array:
    """Return the row numbers of a step, int64 (n,), from a list, an array or a tensor on any
    device.

    Raises:
        InputError: others than integers from 0 to ``num_rows`` - 1.
    """
    try:
        numbers = np.asarray(rows.cpu() if hasattr(rows, "cpu") else rows)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, tensors without data
        raise InputError(f"rows: got {type(rows).__name__}, expected integers (n,)") from error
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise InputError(
            f"rows: got shape {numbers.shape} of {numbers.dtype}, expected integers (n,), the "
            "places of the rows in the data set"
        )
    wrong = numbers[(numbers < 0) | (numbers >= num_rows)]
    if wrong.size:
        raise InputError(
            f"rows: got {wrong[0]}, expected numbers from 0 to {num_rows - 1}; take them "
            "from batchplan.training.with_rows of the data set that is planned"
        )
    return numbers.astype(np.int64)
