"""Row numbers that travel in the batches of any loader, as a column ``batchplan_row``."""

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from batchplan.errors import InputError
from batchplan.options import ROW_COLUMN
from batchplan.training.checks import check_numbers
from batchplan.training.sampler import sampler_of


class Numbered(NamedTuple):
    """A row or a batch that is no mapping, with its row numbers."""

    content: Any
    batchplan_row: Any


def with_rows(dataset: Any) -> Any:
    """Return a data set whose rows say which row of ``dataset`` they are.

    Call it on the data set that was planned, before you select from it or reorder it.

    Args:
        dataset: a datasets.Dataset, or another map-style data set of N rows.

    Returns:
        For a datasets.Dataset, one with a column ``batchplan_row``. For others, a view of
        ``dataset``: mappings get this key, and other rows become pairs (row, number).

    Raises:
        InputError: a datasets.Dataset has other numbers in the column, as materialized data have.
    """
    if hasattr(dataset, "add_column"):
        if ROW_COLUMN in dataset.column_names:
            check_numbers(dataset)
            return dataset
        return dataset.add_column(ROW_COLUMN, np.arange(len(dataset)))
    return _Rows(dataset)


def number(loader: Any) -> None:
    """Let the batches of a DataLoader of torch, or of one that accelerate prepared, carry row
    numbers. Batches of loaders without a map-style data set must carry them already.

    Raises:
        InputError: a data set that was selected from another one, without the column.
    """
    from torch.utils.data import IterableDataset  # here: samplers of this package need only NumPy

    sampler = sampler_of(loader)
    for name in ("prepared", "base_dataloader"):
        loader = getattr(loader, name, loader)
    dataset: Any = getattr(loader, "dataset", None)
    streams = isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")
    if streams or not hasattr(loader, "collate_fn") or isinstance(loader.collate_fn, _Collate):
        return
    if getattr(dataset, "_indices", None) is not None and ROW_COLUMN not in dataset.column_names:
        raise InputError(
            "data set: was selected or sorted, so that its places may not be the rows of the plan; "
            "if it was planned so, call its flatten_indices(); else call with_rows of "
            "batchplan.training on the data set that was planned, then select, and pass "
            "remove_unused_columns=False to a Trainer"
        )
    loaded = _Loaded(dataset, None if sampler is None else sampler.num_rows)
    vars(loader)["dataset"] = loaded  # DataLoader refuses to set it
    loader.collate_fn = _Collate(loader.collate_fn)


def take_rows(batch: Any) -> tuple[Any, list[int] | None]:
    """Return a batch without its row numbers, and the numbers; None if it has none.

    Args:
        batch: a mapping with the column, such as a dict or a BatchEncoding; what `with_rows` makes
            of other rows; a list of samples with the column, as WebDataset yields; or a tuple with
            one of these in it. It is not changed.
    """
    if isinstance(batch, Mapping):
        if ROW_COLUMN in batch:
            rest: Any = copy.copy(batch)
            return rest, _integers(rest.pop(ROW_COLUMN))
        for name, inner in batch.items():
            if isinstance(inner, Mapping) and ROW_COLUMN in inner:
                rest, rows = take_rows(inner)
                return _with(batch, name, rest), rows
    elif isinstance(batch, Numbered):
        return batch.content, _integers(batch.batchplan_row)
    elif isinstance(batch, list | tuple):
        taken = [take_rows(part) for part in batch]
        known = [rows for _, rows in taken if rows is not None]
        if known:
            parts = [part for part, _ in taken]
            kind: Any = type(batch)
            rest = kind(*parts) if hasattr(batch, "_fields") else kind(parts)
            samples = isinstance(batch, list) and len(known) == len(batch)
            return rest, [row for rows in (known if samples else known[:1]) for row in rows]
    return batch, None


def _integers(rows: Any) -> list[int]:
    """Return the numbers of a tensor, an array, a list of numbers or of tensors, or of a single
    row."""
    if isinstance(rows, list | tuple):
        return [int(row) for row in rows]
    numbers: list[int] = np.atleast_1d(rows.tolist() if hasattr(rows, "tolist") else rows).tolist()
    return numbers


class Wrapper:
    """Has the attributes of the object that it wraps."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)


class _Rows(Wrapper):
    """A map-style data set whose rows carry their numbers."""

    def __len__(self) -> int:
        return len(self._inner)

    def __getitem__(self, place: Any) -> Any:
        return self._numbered(self._inner[place], place)

    def __getitems__(self, places: list[int]) -> Any:
        return self._each_numbered(self._fetch(places), places)

    def _each_numbered(self, rows: list[Any], places: list[int]) -> list[Any]:
        return [self._numbered(row, place) for row, place in zip(rows, places, strict=True)]

    def _fetch(self, places: list[int]) -> list[Any]:
        fetch = getattr(self._inner, "__getitems__", None)
        return fetch(places) if fetch else [self._inner[place] for place in places]

    def _numbered(self, row: Any, place: Any) -> Any:
        if _is_numbered(row):
            return row
        return _with(row, ROW_COLUMN, place) if isinstance(row, Mapping) else Numbered(row, place)


class _Loaded(_Rows):
    """A `_Rows` for the `_Collate` of the same loader, which gets the rows of a batch and their
    numbers in two lists. Putting a number into each row and taking it out costs four times as
    much.

    The rows of a Subset are numbered in the data set that it is a part of, unless only the Subset
    has as many rows as the plan.

    Args:
        dataset: of the loader.
        planned: rows of the plan; None if it is not known.
    """

    def __init__(self, dataset: Any, planned: int | None) -> None:
        from torch.utils.data import Subset

        super().__init__(dataset)
        self._subsets = []  # the indices of each Subset that the data set is, the outer first
        while isinstance(dataset, Subset):
            if len(dataset) == planned != len(dataset.dataset):  # type: ignore[arg-type]
                break
            self._subsets.append(dataset.indices)
            dataset = dataset.dataset

    def __getitems__(self, places: list[int]) -> Any:
        rows = self._fetch(places)
        if rows and _is_numbered(rows[0]):
            return self._each_numbered(rows, places)
        for indices in self._subsets:
            places = [indices[place] for place in places]
        return Numbered(rows, places)


def _is_numbered(row: Any) -> bool:
    return isinstance(row, Numbered) or (isinstance(row, Mapping) and ROW_COLUMN in row)


def _with(mapping: Any, name: str, value: Any) -> Any:
    """Return a copy of a mapping with another value of a key."""
    copied = copy.copy(mapping)
    copied[name] = value
    return copied


class _Collate(Wrapper):
    """Puts rows together as a loader's own function does, and keeps their numbers.

    The numbers are NumPy's, so that frameworks leave them on the host, where reading them does not
    wait for a device.
    """

    def __call__(self, rows: Iterable[Any]) -> Any:
        collate: Callable[[Any], Any] = self._inner
        plain, taken = take_rows(rows)
        batch, numbers = collate(plain), np.array(taken, np.int64)
        if isinstance(batch, Mapping):
            return _with(batch, ROW_COLUMN, numbers)
        return Numbered(batch, numbers)
