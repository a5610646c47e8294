"""scns against brute force: what it draws, how often, and what it never draws."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import chisquare, kstest

from batchplan import InputError, mine_negatives, plan
from batchplan.data import Embeddings
from batchplan.planners.papers.scns.classes import _pick
from batchplan.planners.papers.scns.options import ScnsOptions
from tests.dense import similarities, unit_sides

SEEDS = 300


def distribution(embeddings, k, temperature, forbidden):
    """(N, N): the softmax over the k most similar rows of each that are not forbidden."""
    never = forbidden | np.eye(len(forbidden), dtype=bool)
    scores = np.where(never, -np.inf, similarities(embeddings))
    kept = np.sort(scores, axis=1)[:, -k][:, None]
    logits = np.where(scores >= kept, scores, -np.inf) / temperature
    share = np.exp(logits - logits.max(axis=1, keepdims=True))
    return share / share.sum(axis=1, keepdims=True)


def columns(path, **values):
    pq.write_table(pa.table(values), path)
    return str(path)


def make_table(embeddings, **options):
    return mine_negatives(embeddings, planner="scns", device="cpu", **{"batch_size": 8, **options})


def check_frequencies(drawn, shares):
    """Rows drawn (draws, N) have frequencies as in ``shares`` (N, N)."""
    for row, share in enumerate(shares):
        there = share > 0
        counts = np.bincount(drawn[:, row], minlength=len(share))
        assert not counts[~there].any()
        assert chisquare(counts[there], share[there] * len(drawn)).pvalue > 1e-5


def test_first_draws_are_the_softmax(make):
    embeddings = make(12)
    share = distribution(embeddings, 5, 0.5, np.zeros((12, 12), bool))
    tables = [
        make_table(embeddings, top_k=5, per_row=3, scns_temperature=0.5, seed=seed)
        for seed in range(SEEDS)
    ]
    check_frequencies(np.stack([one.negatives[:, 0] for one in tables]), share)
    expected = np.take_along_axis(share, tables[0].negatives, axis=1)
    np.testing.assert_allclose(tables[0].probabilities, expected, rtol=1e-4)
    # The second draw is by the same shares, without the row drawn first.
    second = (
        share[:, None, :] * (1 - np.eye(12)) * (share / (1 - share + 1e-300))[:, :, None]
    ).sum(1)
    check_frequencies(np.stack([one.negatives[:, 1] for one in tables]), second)


@pytest.mark.parametrize("as_batches", [False, True])
@pytest.mark.parametrize("level", ["instance", "class"])
def test_never_the_own_row_label_or_group(make, tmp_path, level, as_batches):
    embeddings = make(90)
    rng = np.random.default_rng(0)
    labels, groups = rng.integers(0, 6, 90), rng.integers(0, 9, 90)
    table = columns(tmp_path / "rows.parquet", label=labels, group=groups)
    options = {
        "level": level, "label_column": "label", "group_column": "group", "label_table": table,
        "per_row": 4, "top_k": 3 if level == "class" else 8, "batch_size": 20,
    }  # fmt: skip
    if as_batches:
        made = plan(embeddings, planner="scns", as_batches=True, device="cpu", **options)
        assert np.diff(made.batch_offsets).tolist() == [20] * 22 + [10]
        anchors, negatives = [], []
        for batch in made.batches():
            each = len(batch) // 5
            anchors += list(np.repeat(batch[:each], 4))
            negatives += list(batch[each : 5 * each])
        assert sorted(anchors[::4]) == list(range(90))
    else:
        found = make_table(embeddings, **options)
        anchors = np.repeat(found.anchors, 4)
        negatives = found.negatives.ravel()
        assert all(len(set(row)) == 4 for row in found.negatives)
    anchors, negatives = np.array(anchors), np.array(negatives)
    assert (anchors != negatives).all()
    assert (labels[anchors] != labels[negatives]).all()
    assert (groups[anchors] != groups[negatives]).all()


def test_rows_without_a_label_are_not_apart(make, tmp_path):
    embeddings = make(10)
    labels = pa.array([None] * 9 + [1])
    table = columns(tmp_path / "rows.parquet", label=labels)
    found = make_table(embeddings, top_k=9, per_row=9, label_column="label", label_table=table)
    assert all(sorted({*range(10)} - {i}) == sorted(row) for i, row in enumerate(found.negatives))


def test_class_level(make, tmp_path):
    """Classes by the softmax of their similarity, rows of a class alike."""
    embeddings = make(12)
    codes = np.array([0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 2])
    table = columns(tmp_path / "rows.parquet", label=pa.array(list("dbca"))
                    .take(pa.array(codes)))  # fmt: skip
    x, y = unit_sides(embeddings)
    vectors = np.stack([(x[codes == c].mean(0) + y[codes == c].mean(0)) / 2 for c in range(4)])
    classes = Embeddings.from_arrays(vectors.astype(np.float32))
    share = distribution(classes, 2, 0.3, np.zeros((4, 4), bool))[codes][:, codes]
    share = share / np.bincount(codes)[codes]
    options = {"level": "class", "label_column": "label", "label_table": table, "top_k": 2,
                "scns_temperature": 0.3, "per_row": 2}  # fmt: skip
    tables = [make_table(embeddings, seed=seed, **options) for seed in range(SEEDS)]
    check_frequencies(np.stack([one.negatives[:, 0] for one in tables]), share)
    expected = np.take_along_axis(share, tables[0].negatives, axis=1)
    np.testing.assert_allclose(tables[0].probabilities, expected, rtol=1e-4)


def test_class_embeddings(make, tmp_path):
    """Vectors of the classes, of their own dimension, in the order in which labels first appear."""
    embeddings = make(12)
    codes = np.array([0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 2])
    table = columns(tmp_path / "rows.parquet", label=pa.array(list("dbca")).take(pa.array(codes)))
    vectors = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    np.save(file := tmp_path / "classes.npy", vectors)
    share = distribution(Embeddings.from_arrays(vectors), 2, 0.3, np.zeros((4, 4), bool))
    share = share[codes][:, codes] / np.bincount(codes)[codes]
    options = {"level": "class", "label_column": "label", "label_table": table, "per_row": 2,
               "top_k": 2, "scns_temperature": 0.3}  # fmt: skip
    found = make_table(embeddings, class_embeddings=str(file), **options)
    expected = np.take_along_axis(share, found.negatives, axis=1)
    np.testing.assert_allclose(found.probabilities, expected, rtol=1e-4)
    np.save(file, vectors[:3])
    with pytest.raises(InputError, match="class embeddings: got 3 rows, expected 4: one for each"):
        make_table(embeddings, class_embeddings=str(file), **options)


def test_coefficients_of_latent_mixup(make):
    """Equation 8: nu by Beta(b, b), with the same negatives as without."""
    embeddings = make(400)
    plain, mixed = make_table(embeddings), make_table(embeddings, mixup_beta=0.4)
    assert plain.mixup is None
    assert np.array_equal(plain.negatives, mixed.negatives)
    assert mixed.mixup.shape == (400, 10)
    assert kstest(mixed.mixup.ravel(), "beta", (0.4, 0.4)).pvalue > 1e-4


def test_what_is_drawn_when_a_class_has_no_row_left():
    """The other classes keep their shares of what is left."""
    generator, weights = np.random.default_rng(0), np.array([0.0, 0.1, 0.3])
    drawn = np.bincount([_pick(weights, generator) for _ in range(3000)], minlength=3)
    assert drawn[0] == 0
    assert chisquare(drawn[1:], [750, 2250]).pvalue > 1e-3
    assert _pick(np.zeros(3), generator) == -1


def test_all_rows_of_few_classes(make, tmp_path):
    """Where the negatives asked for are all there are, every one is found."""
    embeddings = make(12)
    table = columns(tmp_path / "rows.parquet", label=[0] * 6 + [1] * 6)
    options = {"level": "class", "label_column": "label", "label_table": table}
    found = make_table(embeddings, per_row=6, **options)
    assert all(sorted(row) == list(range(6, 12)) for row in found.negatives[:6])
    with pytest.raises(InputError, match="row 0 has 6 rows to draw from, expected at least 7"):
        make_table(embeddings, per_row=7, **options)


def test_temperature_and_seed(make):
    embeddings = make(400)
    plain = make_table(embeddings)
    hard = make_table(embeddings, scns_temperature=1e-4)
    scores = similarities(embeddings) - 9 * np.eye(400)
    assert np.mean(hard.negatives[:, 0] == scores.argmax(axis=1)) > 0.98
    other = make_table(embeddings, seed=1)
    assert not np.array_equal(plain.negatives, other.negatives)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"top_k": 0}, "top k: got 0, expected a number of at least 1"),
        ({"per_row": 0}, "per row: got 0, expected a number of at least 1"),
        ({"per_row": 101}, "per row: got 101 negatives, expected at most top_k, 100"),
        ({"scns_temperature": 0.0}, "scns temperature: got 0.0, expected a finite number above 0"),
        ({"level": "class"}, "level: class needs classes"),
        ({"class_embeddings": "a.npy"}, "class embeddings: given without --level class"),
        ({"mixup_beta": float("inf")}, "mixup beta: got inf"),
        ({"mixup_beta": 1, "as_batches": True}, "mixup beta: a plan has no coefficients"),
        ({"level": "row"}, "level: got 'row', expected instance or class"),
        ({"label_table": "a.parquet"}, "label table: given without --group-column"),
    ],
)
def test_options_that_do_not_fit(options, says):
    with pytest.raises(InputError, match=says):
        ScnsOptions(**options)


def test_data_that_does_not_fit(make, tmp_path):
    embeddings = make(20)
    with pytest.raises(InputError, match="row 0 has 19 rows to draw from, expected at least 20"):
        make_table(embeddings, per_row=20)
    with pytest.raises(InputError, match="got 10, expected at most 7 in batches of 8"):
        plan(embeddings, planner="scns", batch_size=8, as_batches=True)
    table = columns(tmp_path / "rows.parquet", one=[1] * 20, some=[None, *range(19)])
    for column, says in (("one", "got 1 class"), ("some", "1 rows have none, first row 0")):
        with pytest.raises(InputError, match=says):
            make_table(embeddings, level="class", label_column=column, label_table=table, per_row=2)
