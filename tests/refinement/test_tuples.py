"""Swaps with mined negatives: the loss of anchors that meet the documents of all rows."""

import numpy as np
import pytest
import torch

from batchplan.data.answers import Answers
from batchplan.refinement import refine_rows, repair_rows
from batchplan.refinement.blocks import BROKEN, SIMILAR
from batchplan.refinement.masks import masks_of
from batchplan.refinement.rounds import _logits
from batchplan.refinement.terms import fill_terms, similarities_of

N = 96


def tuples(clusters, k=2, ragged=False, paired=True, **changes):
    case = clusters(N, paired=paired)
    rng = np.random.default_rng(5)
    negatives = case.x[:, None] + 0.8 * rng.standard_normal((N, k, case.x.shape[1]))
    if ragged:
        negatives[rng.random((N, k)) < 0.4] = 0
    return case.but(negatives=negatives.astype(np.float32), **changes)


@pytest.mark.parametrize("ragged", [False, True])
def test_similarities_of_documents(clusters, ragged):
    case = tuples(clusters, ragged=ragged)
    objective = case.objective()
    members = np.random.default_rng(0).permutation(N).reshape(4, 24)
    similarities, largest = similarities_of(objective, members)
    tiles = case.documents()
    forth = case.tau * np.logaddexp.reduce(tiles / case.tau)
    for block, most, rows in zip(similarities.numpy(), largest.numpy(), members, strict=True):
        at = np.ix_(rows, rows)
        assert np.allclose(block[0], forth[at], atol=1e-6)
        assert np.allclose(block[1], tiles[0][at], atol=1e-6)
        assert np.allclose(most, tiles.max(axis=0)[at], atol=1e-6)
        exact = _logits(objective, rows)
        assert np.allclose(exact, [forth[at] / case.tau, tiles[0][at] / case.tau], atol=1e-4)
    terms, no_mask = np.empty((2, 24, 24), np.float32), np.empty((0, 0), np.uint8)
    for block, rows in zip(similarities.numpy(), members, strict=True):
        fill_terms(block, no_mask, case.tau, terms)
        at = np.ix_(rows, rows)
        for found, logits in zip(terms, (forth[at].T, tiles[0][at]), strict=True):
            ratio = found / np.exp(logits / case.tau)
            assert np.allclose(ratio, ratio[0, 0], rtol=1e-3)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(("k", "ragged"), [(1, False), (3, False), (3, True)])
def test_gains_are_those_of_brute_force(clusters, k, ragged, paired, similarity):
    tau = 0.05 if similarity == "cosine" else 1.0
    case = tuples(clusters, k, ragged, paired, similarity=similarity, tau=tau)
    rows, offsets = case.cut(8)
    refined = refine_rows(rows, offsets, case.objective(), case.affinity(), case.runtime, 2)
    gain = case.loss(refined.rows, offsets) - case.loss(rows, offsets)
    assert refined.gain == pytest.approx(gain, rel=1e-4)
    assert gain > 0


@pytest.mark.parametrize("tau", [1e-3, 0.05])  # the first is too wide for one factor a block
@pytest.mark.parametrize("limited", [False, True])
def test_guards_and_temperatures(clusters, tau, limited):
    ceilings = np.full(N, 0.7) if limited else None
    case = tuples(clusters, ragged=True, tau=tau, ceilings=ceilings, groups=(np.arange(N) // 3,))
    rows, offsets = case.cut(8)
    objective, affinity = case.objective(), case.affinity()
    refined = refine_rows(rows, offsets, objective, affinity, case.runtime, 2)
    gain = case.loss(refined.rows, offsets) - case.loss(rows, offsets)
    assert refined.gain == pytest.approx(gain, rel=1e-3, abs=1e-2)
    repaired, broken = repair_rows(refined.rows, offsets, objective, case.runtime)
    S = case.similarities()
    apart = case.together() | case.alike(S)
    assert broken == case.pairs(repaired, offsets, apart)
    assert broken <= case.pairs(rows, offsets, apart)


@pytest.mark.parametrize(("moved", "relation"), [(0, BROKEN), (1e-3, SIMILAR)])
def test_a_negative_that_is_the_positive_of_another_row_is_kept_apart(clusters, moved, relation):
    """Nothing else is too similar: only x_1 . n_0 reaches a ceiling. Equal texts are kept apart at
    any cost."""
    case = clusters(N)
    S = case.similarities()
    negatives = np.zeros((N, 1, case.x.shape[1]), np.float32)
    negatives[0, 0] = case.y[1]
    negatives[0, 0, 0] += moved
    codes = np.stack([np.arange(N), N + np.arange(N)])  # of the documents
    codes[1, 0] = N if moved else 1
    answers = Answers.of(np.arange(N), codes)
    case = case.but(negatives=negatives, ceilings=np.full(N, 2.0), answers=answers)
    case.ceilings[1] = S[1, 1] - 1e-2
    (mask,) = masks_of(case.objective(), np.array([[0, 1]]))
    assert mask[0, 1] == mask[1, 0] == relation
    (mask,) = masks_of(case.but(negatives=None, answers=None).objective(), np.array([[0, 1]]))
    assert (mask[0, 1] == SIMILAR) == (max(S[0, 1], S[1, 0]) >= case.ceilings[1])


def test_weights_of_the_graph(clusters):
    """What two rows add to each other's loss, with the sums over documents."""
    case = tuples(clusters, ragged=True)
    graph = case.affinity()
    tiles, tau = case.documents(), case.tau
    forth, back = np.logaddexp.reduce(tiles / tau), tiles[0].T / tau
    sample = np.sort(case.runtime.generator(5).choice(N, N, replace=False))
    sums = []
    for logits in (forth, back):
        others = np.where(np.eye(N, dtype=bool), -np.inf, logits)[:, sample]
        mean = np.logaddexp.reduce(others, axis=1) - np.log(N) + np.log(7)
        sums.append(np.logaddexp(np.diagonal(logits), mean))
    owners = np.repeat(np.arange(N), np.diff(graph.indptr))
    for a, b, weight in zip(owners, graph.indices, graph.weights, strict=True):
        rises = [
            np.log1p(np.exp(logits[i, j] - own[i]))
            for logits, own in zip((forth, back), sums, strict=True)
            for i, j in ((a, b), (b, a))
        ]
        assert weight == pytest.approx(max(sum(rises), 1e-30), rel=1e-3)


def test_same_bytes_with_any_number_of_threads(clusters):
    case = tuples(clusters, ragged=True)
    rows, offsets = case.cut(8)
    found = []
    for threads in (1, 2):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            refined = refine_rows(rows, offsets, case.objective(), case.affinity(), case.runtime, 2)
        finally:
            torch.set_num_threads(before)
        found.append((refined.rows.tobytes(), refined.gain))
    assert found[0] == found[1]
