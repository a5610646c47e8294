"""Semantically conditioned negative sampling: draws from the most similar rows or classes.

O'Neill and Bollegala, "Semantically-Conditioned Negative Samples for Efficient Contrastive
Learning", section 3.1; and the coefficients of latent mixup, section 3.2, equation 8.
"""

import numpy as np
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.graph.neighbors import nearest_neighbors
from batchplan.guard.guard import Guard, group_codes
from batchplan.planners.common.anchors import anchor_batches, check_batch, require_enough
from batchplan.planners.common.draft import Draft, Mined
from batchplan.planners.scns.classes import class_vectors, nearest_classes
from batchplan.planners.scns.options import ScnsOptions
from batchplan.planners.scns.sampling import Draws, draw_from_classes, draw_rows
from batchplan.runtime import Runtime

_DRAWS, _MIXUP = 2, 3  # generator streams, separate from those of batches


def scns(embeddings: Embeddings, options: ScnsOptions, runtime: Runtime) -> Draft | Mined:
    """Draw M distinct negatives for every row; more similar rows have higher probabilities.

    Args:
        embeddings: N pairs of d dimensions; O(N^2 d) work at instance level, O(N M) and the
            similarities of classes at class level.
        options: what to draw from, and whether to make a table or batches.
        runtime: device, memory budget, seed of every draw, progress.

    Returns:
        A table; or batches in which B // (1 + M) anchors are followed by their negatives.

    Raises:
        InputError: options that do not fit the data, a zero row under cosine, or a row with fewer
            than M rows to draw from.
        ResourceError: not enough memory, or no such device.
    """
    if options.as_batches:
        check_batch(options.rows_per_batch, options.per_row)
    apart = group_codes(embeddings, options.label_table, *options.columns())
    draw = _rows if options.level == "instance" else _classes
    rows, probabilities = draw(embeddings, options, runtime, apart)
    if options.as_batches:
        return anchor_batches(rows, options.per_row, embeddings, options, runtime, apart)
    mixup = None
    if options.mixup_beta is not None:
        beta = options.mixup_beta
        mixup = runtime.generator(_MIXUP).beta(beta, beta, rows.shape).astype(np.float32)
    return Mined(rows, probabilities, mixup)


def _rows(
    embeddings: Embeddings,
    options: ScnsOptions,
    runtime: Runtime,
    apart: list[NDArray[np.int64]],
) -> Draws:
    """Instance level, section 3.1.2."""
    nearest = nearest_neighbors(
        embeddings,
        min(options.top_k, embeddings.num_rows - 1),
        runtime,
        similarity=options.similarity,
        guard=Guard(None, tuple(apart)),
    )
    require_enough((nearest.indices >= 0).sum(axis=1), options.per_row)
    return draw_rows(
        nearest,
        options.scns_temperature,
        nearest.indices.shape[1] if options.as_batches else options.per_row,
        runtime.generator(_DRAWS),
        runtime,
    )


def _classes(
    embeddings: Embeddings,
    options: ScnsOptions,
    runtime: Runtime,
    apart: list[NDArray[np.int64]],
) -> Draws:
    """Class level, section 3.1.1."""
    labels, *groups = apart
    vectors = class_vectors(
        embeddings, labels, runtime, column=options.label_column, similarity=options.similarity
    )
    neighbors, probabilities = nearest_classes(
        vectors, options.top_k, options.scns_temperature, options.similarity
    )
    # A batch skips negatives that it has already, so draw a few more.
    spare = options.per_row + 8 if options.as_batches else 0
    return draw_from_classes(
        labels,
        groups[0] if groups else None,
        neighbors,
        probabilities,
        (options.per_row, options.per_row + spare),
        runtime.generator(_DRAWS),
        runtime,
    )
