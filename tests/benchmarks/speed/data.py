"""Pairs like the real ones, as many as asked for."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.quality import load


def real_like(folder: Path, rows: int) -> list[NDArray[np.float16]]:
    """The pairs of a folder, and then blends of them, of unit length.

    A blend is the sum of a pair, half of another (the same for both sides) and noise of a fifth of
    its length. So blends have neighbours about as near as the real rows do, and many in number.
    """
    embeddings = load(folder)
    generator = np.random.default_rng(0)
    extra = max(0, rows - embeddings.num_rows)
    pair, other = generator.integers(embeddings.num_rows, size=(2, extra))
    sides = []
    for matrix in (embeddings.x, embeddings.y):
        real = matrix.rows(0, embeddings.num_rows).astype(np.float32)
        real /= np.linalg.norm(real, axis=1, keepdims=True)
        noise = generator.standard_normal((extra, real.shape[1]), np.float32)
        noise *= 0.2 / np.sqrt(real.shape[1])
        side = np.concatenate([real, real[pair] + 0.5 * real[other] + noise])[:rows]
        side /= np.linalg.norm(side, axis=1, keepdims=True)
        sides.append(side.astype(np.float16))
    return sides
