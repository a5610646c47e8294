"""The toy of "Mini-Batch Optimization of Contrastive Loss" (section 5, figure 2).

Vectors that are themselves what is learned: N = 8 pairs of d = 16, batches of 2, projected SGD.
The best they can do is a simplex equiangular tight frame (lemma 1). Batches that never change do
not lead there (theorem 2); batches of high loss do.

The rate is the paper's 0.5 at first. While it stays, a step moves the two pairs of a batch apart by
so much that inner products go on swinging by 0.1 around the frame; it is their mean over epochs
that shows it. Then the rate falls, and the vectors settle.
"""

import numpy as np
import torch

from batchplan.data import Embeddings
from batchplan.planners import plan

N, DIM, RATE = 8, 16, 0.5
STEADY, FALLING, HALVES = 300, 400, 50  # epochs; the rate halves every so many at the end


def train(planner, again, **options):
    """Inner products (N, N) after training on plans of the vectors, made ``again`` each epoch: the
    mean over the epochs 100 to `STEADY`, and the last."""
    rng = np.random.default_rng(0)
    x, y = (torch.from_numpy(rng.standard_normal((N, DIM))).float() for _ in range(2))
    x, y = (torch.nn.functional.normalize(side).requires_grad_() for side in (x, y))
    made, seen = None, []
    for epoch in range(STEADY + FALLING):
        rate = RATE * 0.5 ** (max(0, epoch - STEADY) / HALVES)
        if again or made is None:
            data = Embeddings.from_arrays(x.detach().numpy().copy(), y.detach().numpy().copy())
            made = plan(data, planner=planner, batch_size=2, seed=epoch, device="cpu", **options)
        for batch in made.batches():
            step(x, y, torch.from_numpy(batch.copy()), rate)
        seen.append((x @ y.T).detach().numpy())
    return np.mean(seen[100:STEADY], axis=0), seen[-1]


def step(x, y, batch, rate):
    """One step of SGD on the loss of a batch, and back onto the sphere."""
    logits = x[batch] @ y[batch].T
    goal = torch.arange(len(batch))
    loss = sum(torch.nn.functional.cross_entropy(one, goal) for one in (logits, logits.T))
    loss.backward()
    with torch.no_grad():
        for side in (x, y):
            side -= rate * side.grad
            side /= side.norm(dim=1, keepdim=True)
            side.grad = None


def distance(products):
    """The largest difference from the inner products of a simplex ETF."""
    frame = np.full((N, N), -1 / (N - 1))
    np.fill_diagonal(frame, 1)
    return float(np.abs(products - frame).max())


def test_batches_that_rows_choose_reach_the_frame():
    mean, last = train("scb", again=True, temperature=1.0)
    assert distance(mean) < 0.15
    assert distance(last) < 0.01


def test_fixed_batches_do_not():
    mean, last = train("random", again=False)
    assert min(distance(mean), distance(last)) > 0.5
    np.testing.assert_allclose(np.diagonal(last), 1, atol=0.01)  # it did converge
