"""chain against a plain search in a whole matrix of similarities, and what its options do."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchplan import InputError, ResourceError
from batchplan.data import Embeddings
from batchplan.planners import plan
from batchplan.planners.papers.chain.options import ChainOptions
from batchplan.runtime import Runtime


def whole(n, d, low=-3, high=4, seed=0):
    """Embeddings of small whole numbers: dot products are exact, on any machine, and many are
    equal."""
    rng = np.random.default_rng(seed)
    return Embeddings.from_arrays(
        *(rng.integers(low, high, (n, d)).astype(np.float32) for _ in range(2))
    )


def plain_chain(scores, rows, start, hardness, forbidden):
    """The rule of the docs, said again with lists and sorts."""
    left, chained = sorted(rows), [start]
    left.remove(start)
    while left:
        here = chained[-1]
        of = scores[here] if len(chained) % 2 else scores[:, here]
        allowed = [row for row in left if not forbidden[here, row]] or left
        ranked = sorted(allowed, key=lambda row: (-of[row], row))
        chosen = ranked[int((1 - hardness) * (len(ranked) - 1))]
        left.remove(chosen)
        chained.append(chosen)
    return chained


def plain_spaces(n, batch_size, space_rows, seed):
    """The rows of each space in the order in which they are dealt."""
    batches, most = -(-n // batch_size), space_rows // batch_size
    sizes = [len(part) for part in np.array_split(np.arange(batches), -(-batches // most))]
    dealt, start = Runtime(seed=seed).generator().permutation(n).tolist(), 0
    for size in sizes:
        yield dealt[start : start + size * batch_size]
        start += size * batch_size


def scores_of(embeddings):
    x, y = (side.rows(0, embeddings.num_rows) for side in (embeddings.x, embeddings.y))
    return x.astype(np.float64) @ y.astype(np.float64).T


@pytest.mark.parametrize("hardness", [1.0, 0.9, 0.5, 0.0])
@pytest.mark.parametrize(
    ("n", "batch_size", "space_rows"),
    [(60, 60, 60), (61, 4, 20), (90, 7, 90), (5, 2, 2), (2, 2, 9)],
)
def test_chains_are_those_of_a_plain_search(n, batch_size, space_rows, hardness):
    embeddings = whole(n, 3)
    scores, expected = scores_of(embeddings), []
    nothing = np.zeros((n, n), bool)
    for rows in plain_spaces(n, batch_size, space_rows, 4):
        expected += plain_chain(scores, rows, rows[0], hardness, nothing)
    made = plan(
        embeddings, planner="chain", batch_size=batch_size, space_rows=space_rows,
        hardness=hardness,
        seed=4, similarity="dot", batch_order="planned", guard=False, device="cpu",
    )  # fmt: skip
    assert made.rows.tolist() == expected


@given(seed=st.integers(0, 10**6), n=st.integers(4, 40), hardness=st.floats(0, 1))
def test_steps_avoid_what_the_guard_forbids(seed, n, hardness):
    """Before the repair, which is not asked for here: the planner's own order."""
    from batchplan.planners.papers.chain.planner import chain

    embeddings = whole(n, 2, seed=seed)
    scores = scores_of(embeddings)
    options = ChainOptions(batch_size=2, max_score=2.0, hardness=hardness, similarity="dot")
    draft = chain(embeddings, options, Runtime(device="cpu", seed=seed))
    sides = [side.rows(0, n) for side in (embeddings.x, embeddings.y)]
    forbidden = np.maximum(scores, scores.T) >= 2
    same = [(side[:, None] == side).all(axis=2) for side in sides]
    answers = same[0] @ same[1]  # j has the document of a row with the anchor of i
    forbidden |= answers | answers.T
    rows = next(plain_spaces(n, 2, 1920, seed))
    assert draft.rows.tolist() == plain_chain(scores, rows, rows[0], hardness, forbidden)


def test_a_chain_stays_in_a_cluster_until_it_is_used_up(planted):
    embeddings, labels = planted(12, 8)
    made = plan(embeddings, planner="chain", batch_size=8, space_rows=96, batch_order="planned")
    chained = labels[made.rows]
    assert np.count_nonzero(chained[1:] != chained[:-1]) == 11


def test_less_hardness_is_milder(make):
    embeddings = make(400)
    scores, alike = scores_of(embeddings), []
    for hardness in (1.0, 0.9, 0.5, 0.0):
        made = plan(embeddings, planner="chain", batch_size=8, hardness=hardness, similarity="dot")
        alike.append(np.mean([scores[np.ix_(batch, batch)].mean() for batch in made.batches()]))
    assert alike == sorted(alike, reverse=True)


def test_spaces_have_whole_batches_and_at_most_their_rows():
    for size, rows, most in ((64, None, 30), (64, 1920, 30), (64, 127, 1), (500, None, 15)):
        assert ChainOptions(batch_size=size, space_rows=rows).batches_of_space() == most
    shared = ChainOptions(batch_size=100, world_size=8, scope="global")
    assert shared.batches_of_space() == 15  # of the 800 rows that are contrasted


def test_threads_do_not_matter(use_threads, make):
    embeddings, found = make(700), []
    for count in (1, 3):
        use_threads(count)
        found.append(plan(embeddings, planner="chain", batch_size=8, space_rows=90, hardness=0.9))
    assert np.array_equal(found[0].rows, found[1].rows)
    assert found[0].metadata.metrics == found[1].metadata.metrics


def test_groups_are_kept_apart(planted, tmp_path):
    embeddings, labels = planted(20, 8)
    table = str(tmp_path / "groups.parquet")
    pq.write_table(pa.table({"cluster": labels}), table)
    made = plan(
        embeddings, planner="chain", batch_size=8, group_column="cluster", label_table=table, seed=1
    )
    assert made.metadata.metrics["broken_pairs"] == 0
    assert all(len(set(labels[batch])) == 8 for batch in made.batches())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"space_rows": 7}, "space rows: got 7, expected at least the 8 rows of a batch"),
        ({"space_rows": 1}, "space rows: got 1, expected a number of at least 2"),
        ({"space_rows": 1.5}, "space rows: got 1.5, expected an integer or None"),
        ({"hardness": 1.5}, "hardness: got 1.5, expected a finite number from 0 to 1"),
        ({"hardness": float("nan")}, "hardness: got nan"),
    ],
)
def test_refusals(make, options, says):
    with pytest.raises(InputError) as error:
        plan(make(40), planner="chain", batch_size=8, **options)
    assert str(error.value).startswith(says)


def test_it_asks_for_memory_first(make):
    with pytest.raises(ResourceError, match=r"chain: spaces of 1000 rows need .*--space-rows"):
        plan(make(1000), planner="chain", memory=1 << 20)
