"""BatchSampler: random walks with restart over a graph of similar rows.

Yang et al., "BatchSampler: Sampling Mini-Batches for Contrastive Learning in Vision, Language, and
Graphs", KDD 2023, sections 4 and 5.3, algorithms 1 to 3. Each row is linked to the most similar of
a random sample of rows; what a walk over these links meets becomes a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

from batchplan.errors import InputError
from batchplan.guard.options import GuardOptions, guard_of
from batchplan.options import option
from batchplan.planners.common.cut import SHUFFLE, cut, from_batches
from batchplan.planners.common.options import PlannerOptions
from batchplan.planners.common.refine import PassOptions, refined

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from batchplan.data import Embeddings
    from batchplan.planners.rwr.walks import Walked, Walker
    from batchplan.plans import Plan
    from batchplan.runtime import Runtime

_STARTS, _MOVES = 3, 4  # generator streams; 1 shuffles batches, 2 draws the candidates


@dataclass(frozen=True, kw_only=True)
class RwrOptions(GuardOptions, PassOptions, PlannerOptions):
    """Options of `rwr`.

    ``restart`` may also be given as a number, and ``exclude`` as any sequence of paths.

    Raises:
        InputError: as its bases; a number out of its range, or options that exclude each
            other.
    """

    candidates: int = option(
        1000, "M: random rows among which a row's neighbours are sought; N - 1 at most."
    )
    neighbors: int = option(100, "K: the most similar candidates that become neighbours.")
    walk: Literal["rwr", "rw", "bfs", "dfs"] = option(
        "rwr",
        "Random walk with restart, random walk, or the comparisons: breadth first, depth first.",
    )
    restart: str = option(
        "0.2",
        "Probability that a move of rwr leaves from the start of the walk; 0.2:0.05 goes from the "
        "one to the other in a line, with --progress.",
    )
    progress: float = option(0.0, "Share of the training that is done, for such a line; 0 to 1.")
    edge_choice: Literal["uniform", "weight"] = option(
        "uniform", "Neighbours are as likely as each other, or by max(similarity, 0)."
    )
    coverage: Literal["partition", "independent"] = option(
        "partition", "Every row once, or batches that know nothing of each other (a sample)."
    )
    num_batches: int | None = option(
        None, "Plan only so many batches.  [default: N / B, rounded up]"
    )
    exclude: list[str] | None = option(
        None,
        "A plan whose rows are used already; repeat it for several. Needs a partition.",
        kind="path",
    )
    reembedded: bool = option(
        False, "Take excluded plans that were made of other embeddings of the same rows."
    )

    def __post_init__(self) -> None:
        restart: Any = self.restart
        if type(restart) is not bool and isinstance(restart, Real):
            object.__setattr__(self, "restart", str(restart))
        exclude: Any = self.exclude
        if isinstance(exclude, Sequence) and not isinstance(exclude, str):
            object.__setattr__(self, "exclude", tuple(map(str, exclude)) or None)
        super().__post_init__()
        for name in ("candidates", "neighbors", "num_batches"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name.replace('_', ' ')}: got {value}, expected at least 1")
        if not 0 <= self.progress <= 1:
            raise InputError(f"progress: got {self.progress}, expected a share from 0 to 1")
        self.restart_now()
        if self.exclude and self.coverage == "independent":
            raise InputError("exclude: needs --coverage partition; independent batches may repeat")
        if self.tail == "pad" and self.coverage == "partition" and self.is_part():
            raise InputError(
                "tail: got pad, expected keep or drop with --num-batches or --exclude, as the rows "
                "to pad with may be in another plan"
            )

    def is_part(self) -> bool:
        """Whether the plan may be a part of an epoch."""
        return self.num_batches is not None or self.exclude is not None

    def makes_partition(self) -> bool:
        return self.coverage == "partition" and not self.is_part()

    def restart_now(self) -> float:
        """The restart probability after ``progress`` of the training (section 5.3).

        Raises:
            InputError: ``restart`` is not one probability, or two with a colon between.
        """
        parts = self.restart.split(":")
        try:
            first, last = float(parts[0]), float(parts[-1])
        except ValueError:
            first = last = -1.0
        if len(parts) > 2 or not (0 <= first <= 1 and 0 <= last <= 1):
            raise InputError(
                f"restart: got {self.restart!r}, expected a probability from 0 to 1, or two as in "
                "0.2:0.05"
            )
        return first + (last - first) * float(self.progress)


def rwr(embeddings: Embeddings, options: RwrOptions, runtime: Runtime) -> Plan:
    """Plan by walks over the proximity graph.

    Args:
        embeddings: N pairs of d dimensions; N M d multiply-adds, and N (d + 2 K) numbers of 4
            bytes.
        options: graph, walk and batches.
        runtime: seed, threads, memory budget, progress. Only the graph with all other rows as
            candidates is made on a device other than the CPU.

    Returns:
        A plan that partitions the rows, unless the options ask for a part or for a sample. Its
        metrics are ``neighbor_similarity``, the mean over the graph's edges; ``restart``, the
        probability in force; ``jumps`` and ``strays``, see `Walked`; and,
        where plans were excluded, ``rows_excluded``.

    Raises:
        InputError: options that do not fit the data, an excluded plan that does not belong to it,
            or a zero row under cosine.
        ResourceError: not enough memory, or no such device.
    """
    import numpy as np

    from batchplan.graph.proximity import proximity_graph
    from batchplan.planners.rwr.walks import Walker, cumulative_weights, independent

    n = embeddings.num_rows
    used, digests = _excluded(embeddings, options)
    guard = guard_of(embeddings, options, runtime)
    graph = proximity_graph(
        embeddings,
        options.candidates,
        options.neighbors,
        runtime,
        similarity=options.similarity,
        guard=guard,
    )
    metrics: dict[str, Any] = {
        "neighbor_similarity": graph.mean_similarity(),
        "restart": options.restart_now(),
    }
    weights = np.empty((0, 0), np.float32)
    if options.edge_choice == "weight":
        weights = cumulative_weights(graph.similarities)
    order = runtime.generator(_STARTS).permutation(n)
    key = runtime.generator(_MOVES).integers(2**64, dtype=np.uint64)
    walker = Walker(graph.indices, weights, order, key, options.walk, metrics["restart"])
    if options.coverage == "independent":
        batches = options.num_batches or -(-n // options.rows_per_batch)
        with runtime.stage("walk", batches * options.rows_per_batch) as advance:
            walked = independent(walker, options.rows_per_batch, batches, advance)
        plan = _part(walked.rows, embeddings, options, runtime, None)
    else:
        taken = int(np.count_nonzero(used))
        walked = _partition(walker, used, taken, options, runtime)
        if options.is_part():
            plan = _part(walked.rows, embeddings, options, runtime, digests)
        else:
            plan = cut(walked.rows, "rwr", embeddings, options, runtime)
        if digests:
            metrics["rows_excluded"] = taken
    plan = refined(plan, embeddings, options, runtime, guard)
    return plan.with_metrics(jumps=walked.jumps, strays=walked.strays, **metrics)


def _excluded(
    embeddings: Embeddings, options: RwrOptions
) -> tuple[NDArray[np.bool_], list[str] | None]:
    """The rows of the excluded plans, and what is stored of these: a digest of each one's rows."""
    import numpy as np

    from batchplan.plans import Plan
    from batchplan.plans.metadata import rows_digest

    used = np.zeros(embeddings.num_rows, np.bool_)
    if options.exclude is None:
        return used, None
    digests = []
    fingerprint = None if options.reembedded else embeddings.fingerprint
    for path in options.exclude:
        plan = Plan.load(path)
        try:
            plan.require_match(embeddings.num_rows, fingerprint)
        except InputError as error:
            hint = "" if options.reembedded else "; --reembedded takes plans of the same rows"
            raise InputError(f"exclude {path}: {error}{hint}") from error
        used[plan.rows] = True
        digests.append(rows_digest(plan.rows))
    if used.all():
        raise InputError("exclude: the plans hold every row already; begin a new epoch without")
    return used, digests


def _partition(
    walker: Walker, used: NDArray[np.bool_], taken: int, options: RwrOptions, runtime: Runtime
) -> Walked:
    """The next batches of an epoch in which ``taken`` rows are used."""
    from batchplan.planners.rwr.walks import disjoint

    size = options.rows_per_batch
    rows = len(used) - taken
    if options.is_part() and options.tail == "drop":
        rows -= rows % size
        if not rows:
            raise InputError(
                f"exclude: {len(used) - taken} rows are left, no full batch of {size}; begin a new "
                "epoch, or use --tail keep"
            )
    if options.num_batches is not None:
        rows = min(rows, options.num_batches * size)
    # Batches are numbered through the epoch: as long as the embeddings stay the same, the parts of
    # an epoch are the batches that one plan of the whole would have.
    first = -(-taken // size)
    with runtime.stage("walk", rows) as advance:
        return disjoint(walker, used, size, rows, first, advance)


def _part(
    rows: NDArray[np.int64],
    embeddings: Embeddings,
    options: RwrOptions,
    runtime: Runtime,
    digests: list[str] | None,
) -> Plan:
    """A plan of batches that need not hold every row."""
    import numpy as np

    size = options.rows_per_batch
    full = len(rows) // size
    if options.batch_order == "shuffled":
        places = runtime.generator(SHUFFLE).permutation(full)
        mixed = rows[: full * size].reshape(full, size)[places]
        rows = np.concatenate((mixed.ravel(), rows[full * size :]))
    offsets = np.append(np.arange(0, len(rows), size), len(rows))
    samples = options.coverage == "independent"
    plan = from_batches(rows, offsets, "rwr", embeddings, options, runtime, samples=samples)
    stored = {**plan.metadata.options, "exclude": digests}
    return replace(plan, metadata=replace(plan.metadata, options=stored))
