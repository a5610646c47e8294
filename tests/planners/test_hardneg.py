"""hardneg against argsort of the whole matrix, as a table and as batches."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan import InputError, Negatives, mine_negatives, plan
from batchplan.planners import PLANNERS
from tests.dense import similarities


def ranks(embeddings):
    """Rows by their similarity to each row, itself left out."""
    scores = similarities(embeddings)
    np.fill_diagonal(scores, -np.inf)
    return np.argsort(-scores, axis=1, kind="stable")[:, :-1]


def test_the_hardest_row_of_each(make):
    embeddings = make(90)
    table = mine_negatives(embeddings, planner="hardneg", batch_size=8, device="cpu")
    assert isinstance(table, Negatives)
    assert table.anchors.tolist() == list(range(90))
    assert np.array_equal(table.negatives, ranks(embeddings)[:, :1])
    assert (table.metadata.planner, table.metadata.fingerprint) == (
        "hardneg",
        embeddings.fingerprint,
    )


@pytest.mark.parametrize("margin", [{}, {"relative_margin": 0.1}, {"max_score": 0.5}], ids=str)
def test_the_hardest_rows_that_a_guard_allows(make, margin):
    """Positive-aware mining: no negative is nearly as similar as either row's positive."""
    embeddings = make(90)
    table = mine_negatives(embeddings, planner="hardneg", per_row=4, device="cpu", **margin)
    S = similarities(embeddings)
    own = np.diagonal(S)
    ceilings = np.full(90, margin.get("max_score", np.inf))
    if "relative_margin" in margin:
        ceilings = own - 0.1 * np.abs(own)
    allowed = np.maximum(S, S.T) < np.minimum(ceilings[:, None], ceilings)
    np.fill_diagonal(allowed, False)
    order = np.argsort(-np.where(allowed, S, -np.inf), axis=1, kind="stable")[:, :4]
    assert np.array_equal(table.negatives, order)


def test_equal_rows_are_no_negatives_of_each_other(make):
    embeddings = make(40)
    x, y = (side.rows(0, 40).copy() for side in (embeddings.x, embeddings.y))
    y[20:] = y[:20]
    table = mine_negatives(x, y, per_row=5, batch_size=8, guard=True, device="cpu")
    assert not (table.negatives == (np.arange(40)[:, None] + 20) % 40).any()


def test_rows_without_enough_negatives_are_left_out(make):
    """Of 30 rows, those of whose positive is hardly similar allow none."""
    embeddings = make(30)
    x, y = (side.rows(0, 30).copy() for side in (embeddings.x, embeddings.y))
    y[[4, 17]] = -x[[4, 17]]
    notes = []
    observer = SimpleNamespace(
        start=lambda *_: None, advance=lambda *_: None, finish=lambda *_: None,
        note=lambda *note: notes.append(note),
    )  # fmt: skip
    table = mine_negatives(
        x, y, per_row=2, batch_size=8, absolute_margin=0.0, device="cpu", observer=observer
    )
    assert table.anchors.tolist() == [row for row in range(30) if row not in (4, 17)]
    assert table.negatives.shape == (28, 2)
    assert notes == [
        (
            "warning",
            "2 of 30 rows are left out of the table: the guard allows fewer than 2 negatives for "
            "each",
        )
    ]


def test_too_few_rows_are_allowed(make):
    with pytest.raises(InputError, match=r"row 0 has 0 rows to draw from, expected at least 1 \("):
        mine_negatives(make(20), max_score=-2.0, batch_size=8, device="cpu")
    with pytest.raises(InputError, match=r"guard penalty: got 0\.2, but no negative"):
        mine_negatives(make(20), relative_margin=0.1, guard_penalty=0.2)
    with pytest.raises(InputError, match="negatives: got 8, expected at most 7 in batches of 8"):
        plan(make(20), planner="hardneg", batch_size=8, per_row=8, as_batches=True)


@pytest.mark.parametrize(("n", "size"), [(90, 8), (91, 8), (30, 30), (40, 9)])
def test_batches_are_anchors_and_their_next_hardest(make, n, size):
    embeddings = make(n)
    near = ranks(embeddings)
    made = plan(embeddings, planner="hardneg", batch_size=size, as_batches=True, device="cpu")
    anchors = []
    for batch in map(list, made.batches()):
        count = min(size // 2, n - len(anchors))
        own, found = batch[:count], batch[:count]
        for place in range(count):
            free = [row for row in near[own[place]] if row not in found]
            assert batch[count + place] == free[0]
            found = [*found, free[0]]
        if count == size // 2 and size % 2:  # the place left: one more of the first anchor
            assert batch[-1] == next(row for row in near[own[0]] if row not in found)
        anchors += own
    assert sorted(anchors) == list(range(n))
    assert not made.metadata.partitions_rows


def test_tails(make):
    made = {
        tail: plan(
            make(45), planner="hardneg", batch_size=8, as_batches=True, tail=tail, device="cpu"
        )
        for tail in ("keep", "drop", "pad")
    }
    sizes = {tail: np.diff(one.batch_offsets).tolist() for tail, one in made.items()}
    assert sizes == {"keep": [8] * 11 + [2], "drop": [8] * 11, "pad": [8] * 12}


def write_groups(path, groups):
    pq.write_table(pa.table({"group": groups}), path)
    return str(path)


def test_groups_stay_apart(make, tmp_path):
    embeddings = make(60)
    groups = np.arange(60) % 4
    options = {"group_column": "group", "label_table": write_groups(tmp_path / "g.parquet", groups)}
    table = mine_negatives(embeddings, planner="hardneg", device="cpu", batch_size=8, **options)
    expected = [next(j for j in row if groups[j] != groups[i])
                for i, row in enumerate(ranks(embeddings))]  # fmt: skip
    assert table.negatives[:, 0].tolist() == expected
    made = plan(
        embeddings, planner="hardneg", device="cpu", batch_size=8, as_batches=True, **options
    )
    for batch in made.batches():
        half = len(batch) // 2
        assert (groups[batch[:half]] != groups[batch[half:]]).all()


def test_refusals(make, tmp_path):
    embeddings = make(20)
    with pytest.raises(InputError, match="label table: given without --group-column"):
        PLANNERS["hardneg"].options(label_table="a.parquet")
    with pytest.raises(InputError, match="hardneg: makes a table of negatives; pass as_batches"):
        plan(embeddings, planner="hardneg", batch_size=4)
    with pytest.raises(InputError, match="knn: makes a plan of batches"):
        mine_negatives(embeddings, planner="knn", batch_size=4)
    with pytest.raises(InputError, match="planner: got 'abc'"):
        mine_negatives(embeddings, planner="abc")
    table = write_groups(tmp_path / "g.parquet", np.ones(20, np.int64))
    with pytest.raises(InputError, match="row 0 has 0 rows to draw from, expected at least 1"):
        mine_negatives(embeddings, batch_size=4, group_column="group", label_table=table)
    with pytest.raises(InputError, match="hold no columns"):
        mine_negatives(embeddings, batch_size=4, group_column="group")
