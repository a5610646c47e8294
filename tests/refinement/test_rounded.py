"""Rows rounded to 8 bits, by which swaps are searched."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from batchplan.refinement import passes, refine_rows, rounded
from batchplan.refinement.rounded import round_rows


def sides(n, d, seed=0):
    """Rows of unit length with a common direction, float32 (n, d) each."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) + 1
    y = x + rng.standard_normal((n, d))
    return [
        torch.from_numpy((side / np.linalg.norm(side, axis=1, keepdims=True)).astype(np.float32))
        for side in (x, y)
    ]


def rounded_to(x, y, temperature=0.05):
    with ThreadPoolExecutor(2) as pool:
        return round_rows(x, y, temperature, pool)


@pytest.mark.parametrize("d", [64, 1500])
def test_products_are_near_and_the_same_on_any_processor(monkeypatch, d):
    x, y = sides(300, d)
    made = rounded_to(x, y)
    members = np.random.default_rng(1).choice(300, (3, 40), replace=False)
    found = made.products(members)
    monkeypatch.setattr(rounded, "_multiplies_bytes", lambda: False)
    assert torch.equal(found, made.products(members))
    for own, products in zip(members, found, strict=True):
        assert (products - x[own] @ y[own].T).std() < 0.05 / 16
        assert torch.allclose(made.exact(own), products.double(), atol=1e-6)


def test_only_where_logits_change_little():
    x, y = sides(300, 64)
    assert rounded_to(x, y) is not None
    assert rounded_to(x, y, 0.005) is None
    assert rounded_to(1e10 * x, 1e10 * y) is None
    assert rounded_to(1e30 * x, 1e30 * y) is None


def test_constant_rows():
    """The mean is all there is, so nothing is left to round."""
    x = sides(1, 64)[0].expand(100, 64).contiguous()
    made = rounded_to(x, x)
    assert made.products(np.arange(100)[None]).sub(1).abs().max() < 1e-5


@pytest.mark.parametrize("ceiling", [None, 0.7])
@pytest.mark.parametrize("paired", [True, False])
def test_the_gain_is_that_of_the_rows_themselves(case, monkeypatch, paired, ceiling):
    x, y = (side.double().numpy() for side in sides(256, 64))
    ceilings = None if ceiling is None else np.full(256, ceiling)
    made = case(x, *[y] * paired, tau=0.05, ceilings=ceilings, penalty=0.2)
    rows, offsets = made.cut(32)
    calls = []
    rounds = passes.round_rows
    monkeypatch.setattr(
        passes, "round_rows", lambda *given: calls.append(rounds(*given)) or calls[-1]
    )
    found = refine_rows(rows, offsets, made.objective(), made.affinity(6), made.runtime, 3)
    assert calls[0] is not None
    rise = made.loss(found.rows, offsets) - made.loss(rows, offsets)
    assert found.gain == pytest.approx(rise, rel=1e-4, abs=1e-3)
    assert found.gain > 0 or ceiling


def test_exact_rows_are_the_last_resort(case, monkeypatch):
    """Of rows that rounding mixes up, swaps of the rounded rows would lower the loss."""
    x, y = (side.double().numpy() for side in sides(128, 64))
    made = case(x, y, tau=0.05)
    rows, offsets = made.cut(16)
    other = rounded_to(*sides(128, 64, seed=7))
    monkeypatch.setattr(passes, "round_rows", lambda *given: None)
    plain = refine_rows(rows, offsets, made.objective(), made.affinity(6), made.runtime, 3)
    monkeypatch.setattr(passes, "round_rows", lambda *given: other)
    best = refine_rows(plain.rows, offsets, made.objective(), made.affinity(6), made.runtime, 3)
    assert best.gain >= 0
