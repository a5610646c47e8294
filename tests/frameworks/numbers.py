"""Rows that are their own numbers, for frameworks that train any model."""

from __future__ import annotations

import numpy as np
import torch
from torch.utils.data import Dataset

ROWS = 47


class Rows(Dataset):
    """Row i is the number i."""

    def __init__(self, num_rows=ROWS):
        self.num_rows = num_rows

    def __len__(self):
        return self.num_rows

    def __getitem__(self, row):
        return torch.tensor(float(row))


def vectors(weight, rows=None, num_rows=ROWS):
    """Vectors of rows, by default of all, that depend on a weight of the model."""
    rows = np.arange(num_rows) if rows is None else rows
    x = np.random.default_rng(0).standard_normal((num_rows, 4)) + weight * np.eye(num_rows, 4)
    return x[rows].astype(np.float32), x[rows, ::-1].astype(np.float32)
