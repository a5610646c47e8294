"""`refine`: swaps between the batches of any plan that raise the loss seen in training."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

from batchplan.errors import InputError
from batchplan.options import check_names, check_temperature, option
from batchplan.planners.guarding import GuardOptions, guard_of
from batchplan.planners.refining import NEIGHBORS, improved

if TYPE_CHECKING:
    from batchplan.data import Embeddings
    from batchplan.plans import Plan
    from batchplan.runtime import Observer, Runtime


@dataclass(frozen=True, kw_only=True)
class RefinementOptions(GuardOptions):
    """Options of `refine`.

    Raises:
        InputError: as `GuardOptions`; a number out of its range.
    """

    passes: int = option(4, "Passes at most; 0 leaves the plan as it is.")
    least_gain: float = option(0.0, "Stop after a pass that changes the mean loss by less nats.")
    seconds: float | None = option(
        None, "Stop after so long; how far it gets then depends on the machine."
    )
    temperature: float = option(0.05, "tau of the NT-Xent loss.")
    neighbors: int = option(
        NEIGHBORS, "Nearest neighbours of a row that tell which batches have rows to exchange."
    )
    source_column: str | None = option(
        None,
        "Parquet column of sources: batches keep as many rows of each as they have.",
        kind="column",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self.temperature)
        if self.passes < 0:
            raise InputError(f"passes: got {self.passes}, expected 0 or more")
        if self.neighbors < 1:
            raise InputError(f"neighbors: got {self.neighbors}, expected at least 1")
        if not 0 <= self.least_gain < inf:
            raise InputError(f"least gain: got {self.least_gain}, expected 0 nats or more")
        if self.seconds is not None and not 0 < self.seconds < inf:
            raise InputError(f"seconds: got {self.seconds}, expected more than 0")

    def columns(self) -> tuple[str | None, ...]:
        return (*super().columns(), self.source_column)


def refine(
    plan: Plan,
    embeddings: Embeddings,
    *,
    seed: int = 0,
    device: str = "auto",
    memory: int | None = None,
    observer: Observer | None = None,
    **options: Any,
) -> Plan:
    """Raise the training loss of a plan by swaps between its batches; it never falls.

    Args:
        plan: of any planner, and of as many rows; the rows may have been embedded again since.
        embeddings: N pairs.
        seed, device, memory, observer: see `Runtime`; the device finds neighbours only.
        options: fields of `RefinementOptions`: ``passes``, ``temperature``, guards and others.

    Returns:
        A plan of the same batches sizes, each in its place. Its metrics are those of `partition`.

    Raises:
        InputError: an unknown option or one out of range, a plan of other data, or files that were
            written to meanwhile.
        ResourceError: not enough memory, or no such device.
    """
    from batchplan.runtime import Runtime

    check_names(options, RefinementOptions, "refine")
    runtime = Runtime(device, memory, seed, observer)
    return refine_plan(plan, embeddings, RefinementOptions(**options), runtime)


def refine_plan(
    plan: Plan, embeddings: Embeddings, options: RefinementOptions, runtime: Runtime
) -> Plan:
    """`refine` with its settings already made; raises the same."""
    from batchplan.planners.partitioning import sources_of
    from batchplan.plans.metadata import library_versions, rows_digest
    from batchplan.refinement import Passes, make_objective

    plan.require_match(embeddings.num_rows, None)
    made = replace(plan, metadata=replace(plan.metadata, metrics={"passes": 0, "refine_gain": 0.0}))
    if options.passes:
        objective = make_objective(
            embeddings, runtime, similarity=options.similarity, temperature=options.temperature,
            guard=guard_of(embeddings, options, runtime), price=options.guard_price,
            kinds=sources_of(embeddings, options),
        )  # fmt: skip
        passes = Passes(most=options.passes, least_gain=options.least_gain, seconds=options.seconds)
        made = improved(
            made, embeddings, objective, runtime, passes, options.similarity, options.neighbors
        )
    before = plan.metadata
    stored = {
        **asdict(options),
        "planner": before.options["planner"] if before.planner == "refine" else before.planner,
        "plan": rows_digest(plan.rows),
    }
    embeddings.require_unchanged()
    metadata = replace(
        made.metadata, planner="refine", options=stored, seed=runtime.seed,
        fingerprint=embeddings.fingerprint, versions=dict(library_versions()),
    )  # fmt: skip
    return replace(made, metadata=metadata)
