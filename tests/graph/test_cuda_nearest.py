"""Neighbours as CUDA devices find them, run on the CPU by Triton's interpreter."""

import numpy as np
import pytest
import torch

from batchplan.data import Embeddings
from batchplan.guard.apart import Apart
from batchplan.guard.guard import Guard
from batchplan.guard.rules import rules_of

CPU = torch.device("cpu")


@pytest.fixture
def modules(device_code):
    """The modules under test."""
    from batchplan.graph.cuda import nearest, sweep

    return nearest, sweep


def search(modules, embeddings, k, *, guard=None, both=True, devices=1, keep_x=True):
    nearest, sweep = modules
    sides = sweep.sides_of(
        embeddings, [CPU] * devices, torch.float32, False, keep_x, lambda _rows: None
    )
    rules = rules_of(guard, embeddings, sides.keys[0].rows, False)
    done = []
    indices, similarities = nearest.nearest(sides, k, rules, both, done.append)
    assert sum(done) == embeddings.num_rows
    return indices, similarities


def wanted(brute, embeddings, k, guard=None, both=True):
    """The same from the whole product."""
    S = torch.from_numpy(brute.similarities(embeddings, "dot"))
    broken = torch.eye(len(S), dtype=torch.bool)
    if guard is not None:
        for own in torch.from_numpy(guard.apart.codes):
            broken |= (own[:, None] == own) & (own >= 0)
        if guard.ceilings is not None:
            ceilings = torch.from_numpy(guard.ceilings)
            broken |= torch.maximum(S, S.T) >= torch.minimum(ceilings[:, None], ceilings)
    S = S.masked_fill(broken, -torch.inf)
    S = torch.cat([S, S.T]) if both and embeddings.paired else S
    values, order = torch.sort(S, dim=1, descending=True, stable=True)
    order[values == -torch.inf] = -1
    return order[:, :k], values[:, :k]


def check(got, wanted):
    assert torch.equal(got[1], wanted[1])
    assert torch.equal(got[0], wanted[0])


def noise(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


@pytest.mark.parametrize("name", ["gaussian", "single", "integers", "hubs", "sorted_clusters"])
def test_equals_brute_force(modules, brute, data, name):
    check(search(modules, data(name), 2), wanted(brute, data(name), 2))


def test_of_rows_of_x_alone(modules, brute, data):
    got = search(modules, data("gaussian"), 1, both=False)
    check(got, wanted(brute, data("gaussian"), 1, both=False))


def test_all_others(modules, brute, data):
    embeddings = data("integers", 40)
    check(search(modules, embeddings, 39), wanted(brute, embeddings, 39))


@pytest.mark.parametrize("name", ["gaussian", "single"])
def test_devices_strips_and_ranking_change_nothing(modules, brute, data, monkeypatch, name):
    nearest, sweep = modules
    embeddings = data(name)
    monkeypatch.setattr(sweep, "_height", lambda *_: 60)
    monkeypatch.setattr(nearest, "_PENDING", 300)  # limits rise in the midst of a sweep
    for devices, keep_x in ((1, True), (3, False)):
        got = search(modules, embeddings, 2, devices=devices, keep_x=keep_x)
        check(got, wanted(brute, embeddings, 2))


@pytest.mark.parametrize("groups", [24, 1000])
def test_about_as_many_as_expected_reach_a_limit(modules, monkeypatch, groups):
    nearest, sweep = modules
    monkeypatch.setattr(nearest, "_GROUPS", groups)
    x = noise(1500, 24) + 1
    embeddings = Embeddings.from_arrays(x, x + noise(1500, 24, 1))
    sides = sweep.sides_of(embeddings, [CPU], torch.float16, True, True, lambda _rows: None)
    x, y = sides.x[0], sides.keys[0].rows
    limits = nearest._limits(sides, 100.0, 3000, rules_of(None, embeddings, y, True))
    S = (x @ y.T).fill_diagonal_(-torch.inf)
    reached = (torch.cat([S, S.T]) >= limits[:, None]).sum(1).float()
    assert 80 < reached.mean() < 160
    assert reached.min() > 20


@pytest.mark.parametrize("paired", [True, False])
def test_limits_that_are_too_high(modules, brute, monkeypatch, paired):
    """Rows that got too few are swept for again, and no others."""
    nearest, _ = modules
    embeddings = Embeddings.from_arrays(noise(200, 8), noise(200, 8, 1) if paired else None)
    guess, asked = nearest._limits, []

    def too_high(sides, expected, owners, rules):
        asked.append(expected)
        limits = guess(sides, expected, owners, rules)
        if len(asked) == 1:
            limits[::3] = 1000
        return limits

    monkeypatch.setattr(nearest, "_limits", too_high)
    check(search(modules, embeddings, 2), wanted(brute, embeddings, 2))
    assert asked == [32, 512]


@pytest.mark.parametrize("paired", [True, False])
def test_a_guard_that_excludes_the_nearest_costs_no_second_sweep(
    modules, brute, monkeypatch, paired
):
    nearest, _ = modules
    topics = np.repeat(np.eye(6, 12, dtype=np.float32), 50, axis=0)
    x = topics + 0.1 * noise(300, 12)
    embeddings = Embeddings.from_arrays(x, x + 0.1 * noise(300, 12, 1) if paired else None)
    guard = Guard(np.full(300, 0.5, np.float32))  # all 49 others of a topic
    guess, asked = nearest._limits, []
    monkeypatch.setattr(nearest, "_limits", lambda *given: asked.append(given[1]) or guess(*given))
    check(search(modules, embeddings, 2, guard=guard), wanted(brute, embeddings, 2, guard))
    assert asked == [32]


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("kind", ["groups", "ceilings", "all apart"])
def test_guards(modules, brute, paired, kind):
    n = 120
    embeddings = Embeddings.from_arrays(noise(n, 6), noise(n, 6, 1) if paired else None)
    rng = np.random.default_rng(2)
    groups = {"groups": rng.integers(-1, 4, n), "all apart": np.zeros(n, np.int64)}
    ceilings = None
    if kind == "ceilings":
        ceilings = rng.uniform(1, 4, n).astype(np.float32)
        ceilings[:4] = [-np.inf, np.inf, 0, 1e9]
    guard = Guard(ceilings, Apart.of((groups[kind],) if kind in groups else (), None))
    check(search(modules, embeddings, 3, guard=guard), wanted(brute, embeddings, 3, guard))
