"""Every choice of `bcs` and `scb` against the algorithms with losses computed from scratch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from batchplan import InputError, ResourceError, evaluate
from batchplan.data import Embeddings, load_embeddings
from batchplan.data.rows import load_rows
from batchplan.planners import plan
from batchplan.runtime import Runtime
from tests.observing import Observer

SAMPLE = Path(__file__).parents[3] / "sample_data" / "pairs.parquet"
CPU = torch.device("cpu")


def rows_of(embeddings, similarity):
    """float64 x and y, of the float32 rows that planners multiply."""
    n = embeddings.num_rows
    return [
        load_rows(side, 0, n, CPU, similarity == "cosine").double().numpy()
        for side in (embeddings.x, embeddings.y)
    ]


def loss(x, y, batch, temperature):
    """The paper's L_con of a batch, over a temperature."""
    logits = x[batch] @ y[batch].T / temperature
    own = np.diagonal(logits)
    return np.mean(logsumexp(logits, axis=1) - own) + np.mean(logsumexp(logits, axis=0) - own)


def first_best(losses):
    best = max(losses)
    return next(i for i, one in enumerate(losses) if one >= best - 1e-9 * max(1, abs(best)))


def begin(n, batch_size, seed, fraction):
    """The random rows of each batch, the other rows in order of arrival, and the capacities."""
    order = Runtime(seed=seed).generator().permutation(n).tolist()
    cut = [order[start : start + batch_size] for start in range(0, n, batch_size)]
    batches = [rows[: max(1, round(fraction * batch_size))] for rows in cut]
    placed = {row for rows in batches for row in rows}
    return batches, [row for row in order if row not in placed], [len(rows) for rows in cut]


def naive_bcs(x, y, batch_size, temperature, seed, fraction):
    batches, left, capacities = begin(len(x), batch_size, seed, fraction)
    left.sort()
    for size in range(len(batches[0]), batch_size):
        for batch, capacity in zip(batches, capacities, strict=True):
            if size < capacity:
                losses = [loss(x, y, [*batch, row], temperature) for row in left]
                batch.append(left.pop(first_best(losses)))
    return np.concatenate(batches)


def naive_scb(x, y, batch_size, temperature, seed, fraction):
    batches, arriving, capacities = begin(len(x), batch_size, seed, fraction)
    waiting, size = [], len(batches[0])  # the set J of algorithm 2
    for row in arriving:
        if not waiting:
            waiting = [j for j, capacity in enumerate(capacities) if size < capacity]
            size += 1
        losses = [loss(x, y, [*batches[j], row], temperature) for j in waiting]
        batches[waiting.pop(first_best(losses))].append(row)
    return np.concatenate(batches)


NAIVE = {"bcs": naive_bcs, "scb": naive_scb}


@st.composite
def cases(draw):
    """Small data, with duplicates now and then, and options for it."""
    n = draw(st.integers(2, 22))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    x, y = (rng.standard_normal((n, 5)).astype(np.float32) for _ in range(2))
    if draw(st.booleans()):  # ties
        x[n // 2 :], y[n // 2 :] = x[: n - n // 2], y[: n - n // 2]
    paired = draw(st.booleans())
    options = {
        "batch_size": draw(st.integers(2, n)),
        "similarity": draw(st.sampled_from(["cosine", "dot"])),
        "temperature": draw(st.sampled_from([1e-4, 0.05, 1])),
        "seed": draw(st.integers(0, 1000)),
        "random_fraction": draw(st.sampled_from([0.0, 0.0, 0.3, 0.5])),
    }
    return Embeddings.from_arrays(x, y if paired else None), options


@pytest.mark.parametrize("planner", NAIVE)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(case=cases())
def test_every_choice(planner, case):
    embeddings, options = case
    made = plan(embeddings, planner=planner, device="cpu", **options)
    x, y = rows_of(embeddings, options["similarity"])
    names = ("batch_size", "temperature", "seed", "random_fraction")
    settled = [options[name] for name in names]
    assert made.rows.tolist() == NAIVE[planner](x, y, *settled).tolist()


@pytest.mark.parametrize("planner", NAIVE)
def test_all_rows_random_are_random_batches(planner, make):
    """Section 4: with r = 100% this is random sampling."""
    options = {"batch_size": 8, "seed": 4}
    made = plan(make(75), planner=planner, random_fraction=1.0, **options)
    assert np.array_equal(made.rows, plan(make(75), planner="random", **options).rows)


@pytest.mark.parametrize("planner", NAIVE)
def test_more_random_rows_make_milder_batches(planner, some):
    embeddings = load_embeddings(some)
    losses = [
        evaluate(
            plan(embeddings, planner=planner, batch_size=32, random_fraction=share),
            embeddings, random_trials=2,
        ).loss_train
        for share in (0, 0.3, 0.7, 1)
    ]  # fmt: skip
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize("planner", NAIVE)
def test_many_tiles(planner, use_threads, make, monkeypatch):
    """Tiles so small that each is used in part, against tiles that hold everything."""
    embeddings = make(150)
    whole = plan(embeddings, planner=planner, batch_size=8)
    for name, size in (("_ARRIVALS", 3), ("_MEMBERS", 5), ("_CANDIDATES", 7)):
        monkeypatch.setattr(f"batchplan.planners.papers.greedy.planner.{name}", size)
    monkeypatch.setattr("batchplan.planners.papers.greedy.kernels._ROWS_AT_ONCE", 4)
    for threads in (1, 2):
        use_threads(threads)
        assert np.array_equal(plan(embeddings, planner=planner, batch_size=8).rows, whole.rows)
        assert torch.get_num_threads() == threads


@pytest.mark.parametrize("paired", [True, False])
def test_without_room_for_logits(make, monkeypatch, paired):
    embeddings = make(75)
    if not paired:
        embeddings = Embeddings.from_arrays(embeddings.x.rows(0, 75))

    observer = Observer()
    notes = observer.notes

    def planned():
        return plan(embeddings, planner="bcs", batch_size=8, observer=observer).rows

    kept = planned()
    free = iter([1 << 40, 0])
    monkeypatch.setattr(Runtime, "memory_left", lambda self, device=None: next(free))
    assert np.array_equal(planned(), kept)
    assert "logits kept" in notes[0]
    assert "do not fit" in notes[1]
    monkeypatch.undo()


@pytest.mark.parametrize("planner", NAIVE)
def test_too_little_memory(planner, make):
    with pytest.raises(ResourceError, match=f"{planner}: 75 rows of 8 dimensions need"):
        plan(make(75), planner=planner, batch_size=8, memory=1_000_000)


@pytest.mark.parametrize("planner", NAIVE)
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"temperature": 0}, "temperature: got 0, expected a number of at least 1e-06"),
        ({"temperature": float("nan")}, "temperature: got nan"),
        ({"temperature": float("inf")}, "temperature: got inf"),
        ({"random_fraction": 1.5}, "random fraction: got 1.5, expected a finite number from 0 to"),
    ],
)
def test_refusals(planner, make, options, says):
    with pytest.raises(InputError) as error:
        plan(make(20), planner=planner, batch_size=4, **options)
    assert says in str(error.value)


@pytest.mark.parametrize("planner", NAIVE)
def test_long_rows(planner):
    """Logits of 1e30 are as good as any."""
    x, y = np.random.default_rng(0).standard_normal((2, 40, 6)).astype(np.float32) * 1e14
    made = plan(Embeddings.from_arrays(x, y), planner=planner, batch_size=8, similarity="dot")
    assert made.metadata.partitions_rows


def test_planted_clusters(planted):
    """Each batch of `bcs` is full of the cluster it began with, as far as rows are left of it."""
    embeddings, labels = planted(6, 12)
    shares = {}
    for planner in ("bcs", "scb", "random"):
        made = plan(embeddings, planner=planner, batch_size=12)
        pairs = [labels[batch][:, None] == labels[batch] for batch in made.batches()]
        shares[planner] = np.mean([(together.sum() - 12) / (12 * 11) for together in pairs])
    assert shares["bcs"] > 0.4 > shares["scb"] > 1.5 * shares["random"]


def test_sample_data():
    """What the paper says of the order of hardness: a choice of rows beats a choice of batches."""
    whole = load_embeddings(SAMPLE)
    embeddings = Embeddings.from_arrays(whole.x.rows(0, 512), whole.y.rows(0, 512))
    losses = {}
    for planner in ("bcs", "scb"):
        made = plan(embeddings, planner=planner, batch_size=32)
        losses[planner] = evaluate(made, embeddings, random_trials=2).gap_reduction
    assert losses["bcs"] > losses["scb"] > 0
