"""Guesses a bracket that almost surely contains the similarity threshold."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from batchplan.data import Embeddings
from batchplan.data.rows import to_float32
from batchplan.threads import in_blocks

_BLOCK = 256  # rows and columns of a sampled block
_BLOCKS = 48  # about 3 million similarities, a few thousandths of a large product
_FEWEST_BLOCKS = 12
_EDGES_SHOWN = 1 << 15  # a count of this size has a standard error of 0.6%


@dataclass(frozen=True)
class Bracket:
    """The exact threshold is between ``lower`` and ``upper``, unless the guess failed."""

    lower: float
    upper: float


def sample_similarities(
    embeddings: Embeddings, device: torch.device, normalize: bool, share: float = 0.0
) -> np.ndarray:
    """float32: off-diagonal similarities of many small random blocks of X Y^T.

    A block costs one matrix product instead of a gather per pair. Many small blocks have many rows,
    so that rows with unusually many large similarities (hubs) do not count too much. The sample
    decides how fast the graph is built, but not which edges it has. The larger the ``share`` of
    similarities that become edges, the fewer blocks are needed.
    """
    generator = np.random.Generator(np.random.Philox(0))
    n = embeddings.num_rows
    size = min(_BLOCK, n)
    blocks = min(_BLOCKS, math.ceil(4 * n * n / (size * size)))
    if share > 0:
        blocks = min(blocks, max(_FEWEST_BLOCKS, math.ceil(_EDGES_SHOWN / (share * size * size))))
    drawn = [
        [np.sort(generator.choice(n, size, replace=False, shuffle=False)) for _ in range(2)]
        for _ in range(blocks)
    ]
    similarities = [np.empty(0, np.float32)] * blocks

    def multiply(block: int, _stop: int) -> None:
        i, j = drawn[block]
        sides = embeddings.x.take(i), embeddings.y.take(j)
        rows, keys = (to_float32(torch.from_numpy(side), device, normalize) for side in sides)
        tile = (rows @ keys.T).cpu().numpy()
        similarities[block] = tile[i[:, None] != j[None, :]]

    in_blocks(multiply, blocks, 1, device=device)
    return np.concatenate(similarities)


def bracket(sample: np.ndarray, edges: int, pairs: int, widening: float) -> Bracket:
    """The order statistics of the sample around the threshold of the ``edges`` largest of
    ``pairs``.

    The slack is several standard errors of a binomial count, and more after each failed guess
    (``widening`` is 1, 4, 16, ...). Beyond the ends of the sample the bracket is open.
    """
    expected = sample.size * edges / pairs
    slack = widening * (6 * math.sqrt(max(expected, 1.0)) + 0.01 * expected)
    low = sample.size - math.ceil(expected + slack)
    high = sample.size - math.floor(expected - slack)
    inside = [rank for rank in (low, high) if 0 <= rank < sample.size]
    ordered = np.partition(sample, inside) if inside else sample
    return Bracket(
        float(ordered[low]) if low >= 0 else -math.inf,
        float(ordered[high]) if high < sample.size else math.inf,
    )
