"""Semantically conditioned negative sampling: draws from the most similar rows or classes.

O'Neill and Bollegala, "Semantically-Conditioned Negative Samples for Efficient Contrastive
Learning", section 3.1; the coefficients of latent mixup, equation 8.
"""

import numpy as np

from batchplan.data import Embeddings
from batchplan.errors import InputError
from batchplan.guard.guard import Guard, group_codes, known_answers, make_apart, make_guard
from batchplan.planners.common.anchors import anchor_batches, check_batch
from batchplan.planners.common.draft import Draft, Mined
from batchplan.planners.papers.scns.classes import draw_from_classes
from batchplan.planners.papers.scns.options import ScnsOptions
from batchplan.planners.papers.scns.rows import draw_rows
from batchplan.runtime import WARNING, Runtime
from batchplan.typing import Float32Array, Int64Array

_MIXUP = 3  # the stream of random numbers of the coefficients


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
    groups = group_codes(embeddings, options.label_table, *options.columns())
    answers = known_answers(embeddings, options, runtime)
    guard = make_guard(embeddings, runtime, groups=groups, answers=answers)

    def drawn(guard: Guard) -> tuple[Int64Array, Float32Array]:
        if options.level == "instance":
            return draw_rows(embeddings, options, runtime, guard)
        return draw_from_classes(embeddings, options, runtime, groups[0], guard.apart)

    try:
        rows, probabilities = drawn(guard)
    except InputError as error:
        # Without equal rows too few are left. Those that ids or a list name are never drawn.
        answers = known_answers(embeddings, options, runtime, equal=False)
        guard = make_guard(embeddings, runtime, groups=groups, answers=answers)
        rows, probabilities = drawn(guard)
        runtime.note(WARNING, f"equal rows may be negatives of each other, since {error}")
    if options.as_batches:
        known = make_apart((), answers)  # batches may have to repeat classes
        return anchor_batches(rows, options.per_row, options, runtime, guard.apart, known)
    mixup = None
    if (beta := options.mixup_beta) is not None:
        mixup = runtime.generator(_MIXUP).beta(beta, beta, rows.shape).astype(np.float32)
    return Mined(rows, probabilities=probabilities, mixup=mixup)
