"""Options of `rwr`."""

from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

from batchplan.errors import OptionError
from batchplan.guard.options import GuardOptions
from batchplan.options import option
from batchplan.planners.common.options import PassOptions, PlannerOptions


@dataclass(frozen=True, kw_only=True)
class RwrOptions(GuardOptions, PassOptions, PlannerOptions):
    """Options of `rwr`.

    ``restart`` may also be given as a number.

    Raises:
        OptionError: as its bases.
    """

    candidate_rows: int = option(
        1000, "Random rows (M) to search for neighbours; at most N - 1.", ge=1
    )
    neighbors: int = option(100, "Most similar of these (K) that become neighbours.", ge=1)
    walk: Literal["rwr", "rw", "bfs"] = option(
        "rwr", "Random walk with restart, without, or breadth first."
    )
    restart: str = option(
        "0.2",
        "Probability that rwr returns to the first row of the batch before a move; 0.2:0.05 "
        "changes it linearly with --progress.",
    )
    progress: float = option(0.0, "Share of the training that is done.", ge=0, le=1)
    coverage: Literal["independent", "complete", "partition"] = option(
        "independent",
        "How batches cover an epoch. independent: N / B batches, each from all rows (the paper). "
        "complete: each starts at a row that none has had, until all are met (its authors' code). "
        "partition: every row once.",
    )

    def __post_init__(self) -> None:
        restart: Any = self.restart
        if type(restart) is not bool and isinstance(restart, Real):
            object.__setattr__(self, "restart", str(restart))
        super().__post_init__()
        self.restart_now()

    def makes_partition(self) -> bool:
        return self.coverage == "partition"

    def at_epoch(self, epoch: int, epochs: int | None) -> dict[str, Any]:
        if ":" not in self.restart:
            return {"progress": 0.0}
        if epochs is None:
            raise OptionError(
                f"restart: got {self.restart}, which changes with the epochs, but their number is "
                "not known; pass epochs, or one probability"
            )
        return {"progress": min(epoch / max(epochs - 1, 1), 1.0)}

    def restart_now(self) -> float:
        """The restart probability after ``progress`` of the training (section 5.3).

        Raises:
            OptionError: ``restart`` is not a probability, or two with a colon between them.
        """
        parts = self.restart.split(":")
        try:
            first, last = float(parts[0]), float(parts[-1])
        except ValueError:
            first = last = -1.0
        if len(parts) > 2 or not (0 <= first <= 1 and 0 <= last <= 1):
            raise OptionError(
                f"restart: got {self.restart!r}, expected a probability from 0 to 1, or two as in "
                "0.2:0.05"
            )
        return first + (last - first) * float(self.progress)
