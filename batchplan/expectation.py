"""What plans gained in trainings that were measured, of data like the user's.

docs/law.md has the trainings, and how far the gains of data sets that were left out are from what
the others say.
"""

from collections.abc import Sequence
from csv import DictReader
from functools import cache
from importlib.resources import files
from statistics import median
from typing import NamedTuple

WORTH = 0.25  # points: a smaller gain may be luck
FEW = 0.05  # share of beaten positives
LARGE = 128  # rows of a batch: plans of 32 and 64 rows gained, others of 256 and more did not


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
        median, lowest, highest: of the similar trainings.
        measured: how many these are.
        alike: what they have in common.
    """

    median: float
    lowest: float
    highest: float
    measured: int
    alike: str

    def __str__(self) -> str:
        """The median and the range, and where they come from."""
        usual, lowest, highest = map(_points, self[:3])
        return (
            f"{usual} points of nDCG@10 over shuffled batches ({lowest} to {highest} in "
            f"{self.measured} trainings of two epochs with {self.alike})"
        )


def expectation(
    beaten_positives: float, batch_size: int, among: Sequence[Training] | None = None
) -> Expectation:
    """Return what plans gained in the trainings of the same kind.

    There are three kinds: large batches; small ones with few beaten positives, and with many.

    Args:
        beaten_positives: share of random negatives that are more similar than the own pair.
        batch_size: in rows.
        among: the trainings to look at; None for all that were measured.
    """
    kind = _kind(beaten_positives, batch_size)
    found = trainings() if among is None else among
    gains = [one.gain for one in found if _kind(one.beaten_positives, one.batch_size) == kind]
    return Expectation(median(gains), min(gains), max(gains), len(gains), kind)


def forecast(beaten_positives: float, batch_size: int) -> str:
    """Say what to expect of plans by embeddings of a model that may not have trained yet: the first
    epoch makes few of many beaten positives. If that is too little, say not to plan."""
    found = expectation(beaten_positives, batch_size)
    advice = "do not plan: " if found.median < WORTH else ""
    if beaten_positives < FEW or batch_size > LARGE:
        return f"{advice}{found}"
    return (
        f"{advice}{found}, if {FEW:.0%} or more of the random negatives still beat the own pair "
        f"after an epoch of training, as {beaten_positives:.1%} do now"
    )


def objection(batch_size: int) -> str:
    """Say what plans of large batches gained, if that is too little; "" for others, whose gain
    depends on the beaten positives after an epoch."""
    if batch_size <= LARGE or (found := expectation(0.0, batch_size)).median >= WORTH:
        return ""
    return (
        f"plans with {found.alike} gained {_points(found.median)} points of nDCG@10 in "
        f"{found.measured} trainings"
    )


def _points(gain: float) -> str:
    return f"{round(gain, 1) + 0.0:+}"  # no sign of a loss for nothing


def _kind(beaten_positives: float, batch_size: int) -> str:
    if batch_size > LARGE:
        return f"batches of more than {LARGE} rows"
    few = "under" if beaten_positives < FEW else "at least"
    return f"batches of up to {LARGE} rows and {few} {FEW:.0%} beaten positives"


@cache
def trainings() -> tuple[Training, ...]:
    """Return all trainings that were measured."""
    text = (files("batchplan") / "trainings.csv").read_text()
    kinds = Training.__annotations__.values()
    return tuple(
        Training(*(kind(value) for kind, value in zip(kinds, row.values(), strict=True)))
        for row in DictReader(text.splitlines())
    )
