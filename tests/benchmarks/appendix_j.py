"""GCBS against a plain implementation of the procedure that the paper profiles."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import reverse_cuthill_mckee

import batchplan

ROWS, DIM, NEIGHBORS = 10_000, 768, 512


def plain_gcbs(x: torch.Tensor, y: torch.Tensor, quantile: float) -> list[int]:
    """The procedure of GCBS appendix J in its plainest form: similarities of three rows at a time,
    a quantile of each chunk, the median of those as threshold, edges collected in Python lists,
    and SciPy's reverse Cuthill-McKee."""
    x, y = (torch.nn.functional.normalize(side) for side in (x, y))
    n = len(x)
    chunks = [x[start : start + 3] for start in range(0, n, 3)]
    threshold = statistics.median(float(torch.quantile(c @ y.T, quantile)) for c in chunks)
    rows: list[int] = []
    columns: list[int] = []
    for number, chunk in enumerate(chunks):
        kept = ((chunk @ y.T).flatten() > threshold).nonzero()[:, 0]
        rows += (kept // n + 3 * number).tolist()
        columns += (kept % n).tolist()
    graph = csr_matrix(([1.0] * len(rows), (rows, columns)), shape=(n, n))
    return reverse_cuthill_mckee(graph).tolist()


def measure(data: Path) -> dict[str, object]:
    """N = 10,000, d = 768, uniform random, 512 a row, from arrays to permutation."""
    torch.manual_seed(0)
    x, y = torch.rand(ROWS, DIM), torch.rand(ROWS, DIM)
    ours = []
    for _ in range(5):
        began = time.perf_counter()
        embeddings = batchplan.load_embeddings(x.numpy(), y.numpy())
        batchplan.plan(embeddings, planner="gcbs", neighbors=NEIGHBORS, device="cpu")
        ours.append(time.perf_counter() - began)
    began = time.perf_counter()
    plain_gcbs(x, y, 1 - NEIGHBORS / ROWS)
    plain = time.perf_counter() - began
    median = statistics.median(ours[1:])  # the first one may compile
    return {
        "seconds, plain": plain,
        "seconds, batchplan (median of 4)": median,
        "times faster (goal 60)": plain / median,
    }
