"""Cosine similarities by their definition, in float64."""

import numpy as np


def unit(rows):
    """The rows, of length 1."""
    rows = np.asarray(rows, np.float64)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def unit_sides(embeddings):
    """The rows of both sides, of length 1."""
    return [unit(side.rows(0, len(side))) for side in (embeddings.x, embeddings.y)]


def similarities(embeddings):
    """(N, N) x_i . y_j."""
    x, y = unit_sides(embeddings)
    return x @ y.T
