"""Semantically conditioned negative sampling: draws from the most similar rows or classes.

O'Neill and Bollegala, "Semantically-Conditioned Negative Samples for Efficient Contrastive
Learning", section 3.1, and the coefficients of latent mixup of section 3.2, equation 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Literal

from batchplan.errors import InputError
from batchplan.options import option
from batchplan.planners.common.options import PlannerOptions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from batchplan.data import Embeddings
    from batchplan.planners.scns.sampling import Drawn
    from batchplan.plans import Plan
    from batchplan.plans.negatives import Negatives
    from batchplan.runtime import Runtime

_DRAWS, _MIXUP = 2, 3  # generator streams, apart from those of batches


@dataclass(frozen=True, kw_only=True)
class ScnsOptions(PlannerOptions):
    """Options of `scns`.

    Raises:
        InputError: as `PlannerOptions`; a number out of its range; an option of the class level
            without it, or the class level without labels.
    """

    level: Literal["instance", "class"] = option(
        "instance", "Draw from the most similar rows, or from rows of the most similar classes."
    )
    top_k: int = option(100, "Most similar rows, or classes, that negatives are drawn from.")
    scns_temperature: float = option(
        0.1, "Temperature of the softmax over similarities; lower draws harder negatives."
    )
    negatives: int = option(10, "Negatives of each row.")
    labels: str | None = option(
        None, "Parquet column of classes: no row gets a negative of its own class.", kind="column"
    )
    group_column: str | None = option(
        None, "Parquet column of groups: no row gets a negative of its own group.", kind="column"
    )
    label_table: str | None = option(
        None,
        "Parquet file of these columns, one row a row of the data, instead of the embeddings.",
        kind="path",
    )
    class_embeddings: str | None = option(
        None,
        "NPY file with a row for each class, in the order in which the labels first appear; "
        "without it a class is the mean of its rows.",
        kind="path",
    )
    mixup_beta: float | None = option(
        None, "Add coefficients of latent mixup, drawn from Beta(beta, beta)."
    )
    as_batches: bool = option(
        False, "A plan whose batches hold anchors and their negatives, instead of a table."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("top_k", "negatives"):
            if (value := getattr(self, name)) < 1:
                raise InputError(f"{name.replace('_', ' ')}: got {value}, expected at least 1")
        for name in ("scns_temperature", "mixup_beta"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and isfinite(value)):
                label = name.replace("_", " ")
                raise InputError(f"{label}: got {value}, expected a number above 0")
        if self.level == "class" and self.labels is None:
            raise InputError("level: class needs classes; name their column with --labels")
        if self.level == "instance" and self.class_embeddings is not None:
            raise InputError("class embeddings: given without --level class, which uses them")
        if self.level == "instance" and self.negatives > self.top_k:
            raise InputError(
                f"negatives: got {self.negatives}, expected at most top_k, {self.top_k}, as those "
                "of a row are distinct"
            )
        if self.label_table is not None and self.labels is None and self.group_column is None:
            raise InputError("label table: given without --labels or --group-column; name a column")
        if self.mixup_beta is not None and self.as_batches:
            raise InputError("mixup beta: batches have no room for coefficients; make a table")

    def makes_partition(self) -> bool:
        return False


def scns(embeddings: Embeddings, options: ScnsOptions, runtime: Runtime) -> Plan | Negatives:
    """Draw M distinct negatives for every row, the more similar the likelier.

    Args:
        embeddings: N pairs of d dimensions; O(N^2 d) work at instance level, O(N M) and the
            similarities of classes at class level.
        options: what to draw from, and whether to make a table or batches.
        runtime: device, memory budget, seed of every draw, progress.

    Returns:
        The table; or a plan in whose batches B // (1 + M) anchors are followed by their negatives.

    Raises:
        InputError: options that do not fit the data, a zero row under cosine, or a row with fewer
            than M rows to draw from.
        ResourceError: not enough memory, or no such device.
    """
    from batchplan.planners.common.negatives import codes_of

    if options.as_batches:
        from batchplan.planners.common.anchors import batches_of, check_batch

        check_batch(options.rows_per_batch, options.negatives)
    apart = codes_of(embeddings, options.label_table, options.labels, options.group_column)
    draw = _rows if options.level == "instance" else _classes
    drawn = draw(embeddings, options, runtime, apart)
    if options.as_batches:
        return batches_of(
            drawn.rows, options.negatives, "scns", embeddings, options, runtime, apart
        )
    return _table(drawn, embeddings, options, runtime)


def _rows(
    embeddings: Embeddings,
    options: ScnsOptions,
    runtime: Runtime,
    apart: list[NDArray[np.int64]],
) -> Drawn:
    """Instance level, section 3.1.2."""
    from batchplan.graph import nearest_neighbors
    from batchplan.guard.guard import Guard
    from batchplan.planners.common.negatives import require_enough
    from batchplan.planners.scns.sampling import draw_rows

    found = nearest_neighbors(
        embeddings,
        min(options.top_k, embeddings.num_rows - 1),
        runtime,
        similarity=options.similarity,
        guard=Guard(None, tuple(apart)),
    )
    require_enough((found.indices >= 0).sum(axis=1), options.negatives)
    return draw_rows(
        found,
        options.scns_temperature,
        found.indices.shape[1] if options.as_batches else options.negatives,
        runtime.generator(_DRAWS),
        runtime,
    )


def _classes(
    embeddings: Embeddings,
    options: ScnsOptions,
    runtime: Runtime,
    apart: list[NDArray[np.int64]],
) -> Drawn:
    """Class level, section 3.1.1."""
    from batchplan.planners.scns.classes import class_vectors, nearest_classes
    from batchplan.planners.scns.sampling import draw_from_classes

    labels, *groups = apart
    vectors = class_vectors(
        embeddings, labels, runtime, column=options.labels, similarity=options.similarity,
        path=options.class_embeddings,
    )  # fmt: skip
    neighbors, probabilities = nearest_classes(
        vectors, options.top_k, options.scns_temperature, options.similarity
    )
    # Batches may have to pass over negatives that they hold already, so these get some to spare.
    spare = options.negatives + 8 if options.as_batches else 0
    return draw_from_classes(
        labels,
        groups[0] if groups else None,
        neighbors,
        probabilities,
        (options.negatives, options.negatives + spare),
        runtime.generator(_DRAWS),
        runtime,
    )


def _table(
    drawn: Drawn, embeddings: Embeddings, options: ScnsOptions, runtime: Runtime
) -> Negatives:
    import numpy as np

    from batchplan.planners.common.negatives import table_metadata
    from batchplan.plans.negatives import Negatives

    mixup = None
    if options.mixup_beta is not None:
        beta = options.mixup_beta
        mixup = runtime.generator(_MIXUP).beta(beta, beta, drawn.rows.shape).astype(np.float32)
    return Negatives(
        np.arange(len(drawn.rows)),
        drawn.rows,
        drawn.probabilities,
        mixup,
        table_metadata("scns", embeddings, options, runtime),
    )
