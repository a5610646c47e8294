"""What plans gained in trainings that were measured, for data that are like the user's.

docs/law.md has the trainings, and how far the gains of data sets that were left out are from what
the others say.
"""

from collections.abc import Sequence
from csv import DictReader
from functools import cache
from importlib.resources import files
from math import log, log2
from statistics import median
from typing import NamedTuple

MOST_SIMILAR = 8  # trainings that are told
WORTH = 0.25  # points: a smaller gain may be luck
_LEAST = 1e-4  # share of beaten positives; that of none has no logarithm


class Training(NamedTuple):
    """What plans gained with one data set and batch size, in two epochs.

    Attributes:
        data, model: their names in docs/law.md.
        rows: number of pairs.
        batch_size: in rows.
        beaten_positives: see `batchplan.training.figures.measured`.
        gain: in points of nDCG@10, over shuffled batches.
    """

    data: str
    model: str
    rows: int
    batch_size: int
    beaten_positives: float
    gain: float


class Expectation(NamedTuple):
    """The gains of plans over shuffled batches in similar trainings, in points of nDCG@10.

    Attributes:
        median, lowest, highest: of the similar ones.
        similar, measured: how many are similar, and were measured.
    """

    median: float
    lowest: float
    highest: float
    similar: int
    measured: int

    def __str__(self) -> str:
        """The median and the range, and where they come from."""
        usual, lowest, highest = (f"{round(gain, 1) + 0.0:+}" for gain in self[:3])
        return (
            f"{usual} points of nDCG@10 over shuffled batches ({lowest} to {highest} in the "
            f"{self.similar} most similar of {self.measured} trainings of two epochs)"
        )


def expectation(
    rows: int, batch_size: int, beaten_positives: float, among: Sequence[Training] | None = None
) -> Expectation:
    """Return what plans gained in the most similar trainings.

    The distance of two trainings is the sum of the differences of three logarithms: of the numbers
    of pairs and the batch sizes, to base 2, and of the odds that a random negative beats a
    positive.

    Args:
        rows: number of pairs.
        batch_size: in rows.
        beaten_positives: share of random negatives that are more similar than the own pair.
        among: the trainings to look at; None for all that were measured.
    """
    found = trainings() if among is None else among
    own = _place(rows, batch_size, beaten_positives)

    def distance(other: Training) -> float:
        place = _place(other.rows, other.batch_size, other.beaten_positives)
        return sum(abs(one - another) for one, another in zip(own, place, strict=True))

    gains = [other.gain for other in sorted(found, key=distance)[:MOST_SIMILAR]]
    return Expectation(median(gains), min(gains), max(gains), len(gains), len(found))


@cache
def trainings() -> tuple[Training, ...]:
    """Return all trainings that were measured."""
    text = (files("batchplan") / "trainings.csv").read_text()
    kinds = Training.__annotations__.values()
    return tuple(
        Training(*(kind(value) for kind, value in zip(kinds, row.values(), strict=True)))
        for row in DictReader(text.splitlines())
    )


def _place(rows: int, batch_size: int, beaten: float) -> tuple[float, ...]:
    share = min(max(beaten, _LEAST), 1 - _LEAST)
    return log2(rows), log2(batch_size), log(share / (1 - share))
