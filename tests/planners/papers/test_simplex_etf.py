"""The toy of "Mini-Batch Optimization of Contrastive Loss" (section 5, figure 2): N = 4 pairs.

The best that vectors can do is a simplex equiangular tight frame (lemma 1). Batches that never
change do not lead there (theorem 2), shuffled ones come nearer; batches of high loss arrive.
"""

import pytest

from tests.benchmarks.reproductions.minibatch import distance, simplex, train

N, EPOCHS = 4, 600


def off(scheme):
    """The largest difference from the inner products of a simplex ETF after training."""
    return distance(train(scheme, N, 2 * N, EPOCHS)["products"], simplex(N))


@pytest.mark.parametrize("planner", ["bcs", "scb"])
def test_batches_of_high_loss_reach_the_frame(planner):
    assert off(planner) < 0.05


def test_other_batches_do_not():
    assert off("fixed") > 0.5 > off("shuffled") > 0.1
