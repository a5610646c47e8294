"""The documents of a corpus that are most similar to each anchor, exactly, in tiles of products."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.data.matrix import RowMatrix
from batchplan.data.rows import load_rows
from batchplan.graph.documents import Lists
from batchplan.runtime import Runtime, full_float32

_ROWS, _COLUMNS = 1024, 8192  # of a tile: 32 MB
_FIXED = 256 << 20


@full_float32()
def nearest_in_corpus(
    embeddings: Embeddings,
    corpus: RowMatrix,
    k: int,
    runtime: Runtime,
    *,
    similarity: str,
    ceilings: NDArray[np.float32],
) -> Lists:
    """The k documents with the largest x_i . c_j below the ceiling of row i: N C d multiply-adds.

    Args:
        embeddings: N anchors of d dimensions.
        corpus: C x d, documents; the ceilings leave out those that are a row's positive.
        k: from 1 on.
        runtime: memory budget, progress.
        similarity: ``cosine`` (rows of unit length) or ``dot``.
        ceilings: float32 (N,); similarities must be below them.

    Returns:
        int64 and float32 (N, k): documents from 0 on, most similar first, ties by the lower one,
        and their similarities; -1 and -inf where there are fewer.

    Raises:
        ResourceError: the lists do not fit into the memory budget.
    """
    n, count, normalize = embeddings.num_rows, len(corpus), similarity == "cosine"
    cpu = torch.device("cpu")
    runtime.require_memory(24 * n * k + _FIXED, f"{k} documents for {n} rows", "use --per-row")
    names = np.full((n, k), -1, np.int64)
    values = np.full((n, k), -np.inf, np.float32)
    with runtime.stage("corpus", n) as advance:
        for start in range(0, n, _ROWS):
            stop = min(start + _ROWS, n)
            anchors = load_rows(embeddings.x, start, stop, cpu, normalize)
            limits = torch.from_numpy(ceilings[start:stop, None])
            best = torch.full((stop - start, 0), -torch.inf)
            places = torch.zeros((stop - start, 0), dtype=torch.int64)
            for first in range(0, count, _COLUMNS):
                last = min(first + _COLUMNS, count)
                tile = anchors @ load_rows(corpus, first, last, cpu, normalize).T
                tile.masked_fill_(tile >= limits, -torch.inf)
                best = torch.cat([best, tile], dim=1)
                numbers = torch.arange(first, last).expand(stop - start, -1)
                places = torch.cat([places, numbers], dim=1)
                # Stable, so that the lower of equal documents comes first.
                order = torch.sort(best, dim=1, descending=True, stable=True).indices[:, :k]
                best, places = best.gather(1, order), places.gather(1, order)
            found, width = best > -torch.inf, best.shape[1]  # fewer than k in a small corpus
            names[start:stop, :width] = torch.where(found, places, -1).numpy()
            values[start:stop, :width] = best.numpy()
            advance(stop - start)
    return names, values
