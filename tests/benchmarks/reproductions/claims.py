"""A claim of a paper, what was found of it here, and the verdict that follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

HOLDS, IN_PART, NOT, NOT_RUN = "holds", "holds in part", "does not hold", "not run"


@dataclass(frozen=True)
class Effort:
    """How much to run."""

    timed_rows: tuple[int, ...] = (5_000, 10_000, 20_000)
    listing_rows: tuple[int, ...] = (2_500, 5_000)
    edges_per_row: int = 512
    table_rows: tuple[int, ...] = (24_927, 275_602)  # of tables 5 and 6 of GCBS
    epochs: int = 10  # of training
    trials: int = 300  # random assignments at the start of each epoch
    seeds: int = 4  # of walks
    batches: int = 512  # of each plan of walks
    toy_rows: tuple[int, ...] = (4, 8, 12, 16, 20)
    toy_epochs: int = 6_000
    anchors: int = 200
    repeats: int = 2_000  # of coupon collections


QUICK = Effort(
    timed_rows=(300, 600),
    listing_rows=(150, 300),
    table_rows=(),
    edges_per_row=16,
    epochs=2,
    trials=20,
    seeds=2,
    batches=8,
    toy_rows=(4,),
    toy_epochs=200,
    anchors=20,
    repeats=200,
)


@dataclass(frozen=True)
class Found:
    """What was found of a claim: in words, and the conditions that the claim stands on."""

    ours: str
    met: Sequence[bool] = ()

    @property
    def verdict(self) -> str:
        """All conditions met, some, or none; without any nothing was run."""
        if not self.met:
            return NOT_RUN
        return HOLDS if all(self.met) else IN_PART if any(self.met) else NOT


@dataclass(frozen=True)
class Claim:
    """One claim: where it stands, what it says, and how what was measured is judged."""

    where: str
    says: str
    judge: Callable[[Any], Found]


def markdown(claims: Sequence[Claim], found: Sequence[Found]) -> str:
    """One row a claim."""
    lines = [["Where", "The paper", "Here", ""], ["---"] * 4]
    for claim, one in zip(claims, found, strict=True):
        lines.append([claim.where, claim.says, one.ours, f"**{one.verdict}**"])
    return table(lines)


def table(lines: Sequence[Sequence[str]]) -> str:
    """Cells as a Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
