"""Swaps within a block of two batches, against the objective of every split in float64."""

from itertools import combinations

import numpy as np
import pytest

from batchplan.refinement import kernel
from batchplan.refinement.blocks import (
    BROKEN,
    GROUP,
    SAME_ROW,
    SIMILAR,
    Block,
    block_loss,
    judge,
)
from batchplan.refinement.kernel import Search, climb, split_of
from tests.dense import unit

NO_MASK, NO_KINDS = np.empty((0, 0), np.uint8), np.empty(0, np.int64)
FLOOR = 1e-3


def logits_of(m, tau, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((m, 4))
    y = x + 0.5 * rng.standard_normal((m, 4))
    return unit(x) @ unit(y).T / tau


def mask_of(m, seed, kinds=(SIMILAR, BROKEN), share=0.3):
    rng = np.random.default_rng(seed)
    mask = np.where(rng.random((m, m)) < share, rng.choice(kinds, (m, m)), 0)
    mask = np.triu(mask, 1)
    return (mask + mask.T).astype(np.uint8)


def terms_of(logits, mask=NO_MASK):
    """The terms of x to y and of y to x, divided by the largest of each sum."""
    hidden = mask > 0 if mask.size else np.zeros(logits.shape, bool)
    shown = np.where(hidden, -np.inf, logits)
    forth = np.exp(shown.T - shown.max(axis=1))
    back = np.exp(shown - shown.max(axis=0))
    return np.stack([forth, back]).astype(np.float32)


def loss(logits, side, mask=NO_MASK):
    total = 0.0
    for one in (0, 1):
        rows = np.flatnonzero(side == one)
        if not len(rows):
            continue
        block = logits[np.ix_(rows, rows)]
        if mask.size:
            block = np.where(mask[np.ix_(rows, rows)] > 0, -np.inf, block)
        for part in (block, block.T):
            peak = part.max(axis=1)
            total += (peak + np.log(np.exp(part - peak[:, None]).sum(axis=1))).sum()
    return total


def together(side, mask, relation):
    """Pairs of a relation that are on one side."""
    return int(((mask == relation) & (side[:, None] == side)).sum()) // 2 if mask.size else 0


def objective(logits, side, mask=NO_MASK, penalty=0.0):
    similar, broken = (together(side, mask, one) for one in (SIMILAR, BROKEN))
    return loss(logits, side, mask) - penalty * similar - GROUP * broken


def splits(m, first):
    """Every side vector with so many rows of the second side."""
    return [np.isin(np.arange(m), one).astype(np.int8) for one in combinations(range(m), first)]


def climbed(
    logits, side, mask=NO_MASK, penalty=0.0, kinds=NO_KINDS, top=4, patience=4, floor=FLOOR
):
    side = side.copy()
    block = Block(terms_of(logits, mask), mask, penalty, kinds)
    climb(block, side, Search(top, patience, floor))
    return side


def settled(*arguments, **more):
    """Climbed until nothing changes."""
    logits, side, *others = arguments
    for _ in range(20):
        before, side = side, climbed(logits, side, *others, **more)
        if np.array_equal(before, side):
            return side
    raise AssertionError("goes on for ever")


@pytest.mark.parametrize("tau", [0.05, 0.5])
@pytest.mark.parametrize("penalty", [None, 0.0, 1.0])
@pytest.mark.parametrize("m", [6, 7, 8])
def test_tiny_blocks(m, penalty, tau):
    """From every start to a local optimum, and from the best of them to the best split of all."""
    for seed in range(4):
        logits = logits_of(m, tau, seed)
        mask = NO_MASK if penalty is None else mask_of(m, seed)
        first = seed % (m // 2) + 1
        starts = splits(m, first)
        values = [objective(logits, one, mask, penalty or 0.0) for one in starts]
        found = []
        for start, value in zip(starts, values, strict=True):
            once = climbed(logits, start, mask, penalty or 0.0)
            assert once.sum() == first
            assert objective(logits, once, mask, penalty or 0.0) >= value - 1e-4
            side = settled(logits, start, mask, penalty or 0.0, top=m)
            found.append(objective(logits, side, mask, penalty or 0.0))
            swapped = []
            for u in np.flatnonzero(side == 0):
                for v in np.flatnonzero(side == 1):
                    other = side.copy()
                    other[u], other[v] = 1, 0
                    swapped.append(objective(logits, other, mask, penalty or 0.0))
            assert max(swapped) <= found[-1] + FLOOR + 1e-4
        assert max(found) == pytest.approx(max(values), abs=1e-4)
        assert max(values) > np.mean(values)


@pytest.mark.parametrize("seed", range(5))
def test_more_than_one_swap_deep(seed):
    """Patience finds what no single swap leads to: it never does worse, and now and then better."""
    found = {0: 0.0, 6: 0.0}
    for trial in range(10):
        logits = logits_of(16, 0.05, 100 * seed + trial)
        start = (np.arange(16) % 2).astype(np.int8)
        for patience in found:
            side = settled(logits, start, patience=patience, top=8)
            found[patience] += objective(logits, side)
    assert found[6] > found[0]


def test_only_rows_of_a_kind_change_places():
    kinds = np.array([0, 0, 0, 1, 1, 1, 2, 2, 0, 1])
    for seed in range(5):
        logits = logits_of(10, 0.1, seed)
        starts = splits(10, 4)[:: 30 + seed]
        for start in starts:
            side = settled(logits, start, kinds=kinds)
            assert np.array_equal(np.bincount(kinds[side > 0]), np.bincount(kinds[start > 0]))
            assert objective(logits, side) >= objective(logits, start)
            same = [
                one
                for one in splits(10, 4)
                if not (
                    np.bincount(kinds[one > 0], minlength=3)
                    - np.bincount(kinds[start > 0], minlength=3)
                ).any()
            ]
            assert objective(logits, side) <= max(objective(logits, one) for one in same) + 1e-6


def test_a_floor_keeps_small_gains_out():
    for seed in range(5):
        logits, start = logits_of(12, 0.5, seed), (np.arange(12) % 2).astype(np.int8)
        most = objective(logits, climbed(logits, start)) - objective(logits, start)
        assert most > 0.1
        assert np.array_equal(climbed(logits, start, floor=3 * most), start)


def test_all_rows_alike():
    logits = np.full((9, 9), 3.0)
    start = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0], np.int8)
    assert np.array_equal(climbed(logits, start), start)


def test_twice_the_same_row_is_never_put_together():
    """Even where they gain most: rows 0 and 1 are one row, and so are 2 and 3."""
    for seed in range(8):
        logits = logits_of(8, 0.05, seed)
        logits[:4, :4] = 30.0
        mask = mask_of(8, seed)
        mask[0, 1] = mask[1, 0] = mask[2, 3] = mask[3, 2] = SAME_ROW
        for start in splits(8, 4):
            if start[0] != start[1] and start[2] != start[3]:
                side = settled(logits, start, mask, 1.0)
                assert (side[0], side[2]) != (side[1], side[3])
                assert side[0] != side[1]
                assert side[2] != side[3]


def random_split(m, seed, masked, penalty=2.0):
    """Logits, the block of these, and a random split of it."""
    logits = logits_of(m, 0.1, seed)
    mask = mask_of(m, seed, share=0.1) if masked else NO_MASK
    side = (np.random.default_rng(seed).permutation(m) < m // 3 + 1).astype(np.int8)
    block = Block(terms_of(logits, mask), mask, penalty, NO_KINDS)
    return logits, block, split_of(block, side)


SHAPES = [(4, 0), (9, 1), (16, 2), (33, 3), (300, 4)]  # more than one run of logarithms at 256


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("m", "seed"), SHAPES)
def test_gains_of_moves_and_swaps(m, seed, masked):
    """A sum of logarithms of ratios is what the loss rises by."""
    penalty = 2.0
    logits, block, split = random_split(m, seed, masked, penalty)
    mask, side, gains = block.mask, split.side, split.gains
    kernel._bound_gains(block, split, np.arange(m))
    bounds = gains.copy()
    for u in range(m):
        kernel._compute_gain(block, split, u)
    assert (gains <= bounds).all()
    value, base = objective(logits, side, mask, penalty), loss(logits, side, mask)
    rng = np.random.default_rng(seed)
    for u in rng.permutation(m)[:12]:
        moved = side.copy()
        moved[u] ^= 1
        assert gains[u] == pytest.approx(
            objective(logits, moved, mask, penalty) - value, rel=1e-4, abs=1e-3
        )
    pairs = [rng.permutation(np.flatnonzero(side == one))[:12] for one in (0, 1)]
    for u, v in zip(*pairs, strict=False):
        swapped = side.copy()
        swapped[u], swapped[v] = 1, 0
        gain = kernel._swap_gain(block, split, u, v)
        assert gain == pytest.approx(loss(logits, swapped, mask) - base, rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("m", "seed"), SHAPES)
def test_sums_follow_the_swaps(m, seed, masked):
    _, block, split = random_split(m, seed, masked)
    mask, side, apart = block.mask, split.side, split.apart
    rng = np.random.default_rng(seed)
    for _ in range(30):
        u, v = (rng.choice(np.flatnonzero(side == one)) for one in rng.permutation(2))
        before = side.copy()
        kernel._swap(block, split, u, v)
        assert (side[u], side[v]) == (before[v], before[u])
        assert not split.free[[u, v]].any()
    near = side[:, None] == side
    for terms, own, other in zip(block.terms, split.sums, split.others, strict=True):
        terms = terms.astype(np.float64)
        assert np.allclose(own, np.where(near, terms, 0).sum(axis=0), rtol=1e-5)
        assert np.allclose(other, np.where(near, 0, terms).sum(axis=0), rtol=1e-5, atol=1e-5)
    weights = 2.0 * (mask == SIMILAR) + GROUP * (mask == BROKEN) if masked else np.zeros((m, m))
    assert np.array_equal(apart[0], np.where(near, weights, 0).sum(axis=0))
    assert np.array_equal(apart[1], np.where(near, 0, weights).sum(axis=0))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("m", "seed"), SHAPES)
def test_judge_and_block_loss(m, seed, masked):
    logits, block, split = random_split(m, seed, masked)
    mask, before = block.mask, split.side
    after = np.random.default_rng(seed + 50).permutation(before)
    gain, similar, broken, smallest, moved = judge(block, before, after)
    rise = loss(logits, after, mask) - loss(logits, before, mask)
    assert gain == pytest.approx(rise, rel=1e-4, abs=1e-4)
    for one, relation in ((similar, SIMILAR), (broken, BROKEN)):
        assert one == together(before, mask, relation) - together(after, mask, relation)
    sums = [
        np.where(side[:, None] == side, terms, 0).sum(axis=0, dtype=np.float64)
        for side in (before, after)
        for terms in block.terms
    ]
    assert smallest == pytest.approx(np.min(sums), rel=1e-5)
    shares = 0.0
    for terms in block.terms.astype(np.float64):
        was, now = (np.where(side[:, None] == side, terms, 0) for side in (before, after))
        stays = np.minimum(was, now).sum(axis=0)
        shares += np.maximum(1 - stays / was.sum(axis=0), 1 - stays / now.sum(axis=0)).sum()
    assert moved == pytest.approx(shares, rel=1e-6, abs=1e-6)
    for side in (before, after):
        expected = loss(logits, side, mask)
        assert block_loss(logits[None], mask, side) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("masked", [False, True])
def test_terms_that_are_off_change_a_gain_by_less_than_the_bound(masked):
    """Whatever the errors, up to a factor of 1 + e of each term."""
    e = 1e-3
    for seed in range(20):
        _, block, split = random_split(24, seed, masked)
        rng = np.random.default_rng(seed)
        after = rng.permutation(split.side) if seed % 2 else split.side.copy()
        first, second = (np.flatnonzero(split.side == one)[0] for one in (0, 1))
        after[[first, second]] = after[[second, first]]
        gain, _, _, _, moved = judge(block, split.side, after)
        own, other = split.side[:, None] == split.side, after[:, None] == after
        errors = [rng.choice((-e, e), block.terms.shape), e * np.where(own & ~other, -1, 1)]
        for error in errors:
            off = block._replace(terms=(block.terms * np.exp(error)).astype(np.float32))
            change = judge(off, split.side, after)[0] - gain
            assert abs(change) <= 2 * moved * e * np.exp(2 * e) + 1e-5


def test_judge_of_a_row_that_is_twice_in_a_batch():
    logits, mask = logits_of(6, 0.1, 0), mask_of(6, 0, share=0)
    mask[0, 5] = mask[5, 0] = SAME_ROW
    apart, together = np.array([0, 0, 0, 1, 1, 1], np.int8), np.array([0, 0, 1, 1, 1, 0], np.int8)
    block = Block(terms_of(logits, mask), mask, 0.0, NO_KINDS)
    assert judge(block, apart, together)[2] == -1
    assert judge(block, together, apart)[2] >= 0


def test_block_loss_of_logits_of_any_size():
    logits = np.random.default_rng(0).standard_normal((8, 8)) * 1e12
    side = np.array([0, 1, 0, 1, 0, 1, 0, 1], np.int8)
    found = block_loss(logits[None], NO_MASK, side)
    assert found == pytest.approx(loss(logits, side), rel=1e-13)
