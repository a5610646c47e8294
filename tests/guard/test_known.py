"""Known answers never meet as negatives: by brute force over random bipartite graphs."""

import itertools
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import batchplan
from batchplan import Embeddings
from batchplan.data.answers import Answers, answers_of
from batchplan.data.duplicates import repeated_codes
from batchplan.data.known import read_known
from batchplan.errors import InputError, OptionError
from batchplan.guard import separation
from batchplan.guard.apart import Apart, apart, separated
from batchplan.guard.options import GuardOptions
from batchplan.guard.separation import filled, left_together, mended
from tests.observing import Observer


class Graph:
    """Rows of a random bipartite graph: anchors (n,), documents (1 + k, n), and more answers."""

    def __init__(self, seed, rows, sides, negatives=0, more=0, dim=16):
        rng = np.random.default_rng(seed)
        pairs = np.unique(rng.integers(0, sides, (2 * rows, 2)), axis=0)
        pairs = rng.permutation(pairs)[:rows]
        self.anchors = pairs[:, 0]
        mined = rng.integers(0, sides[1], (negatives, len(pairs)))
        self.documents = np.concatenate((pairs[None, :, 1], mined))
        self.more = rng.integers(0, sides, (more, 2)).T
        x, y = (rng.standard_normal((count, dim)).astype(np.float32) for count in sides)
        self.x, self.y = x[self.anchors], y[self.documents[0]]
        self.negatives = [y[own] for own in self.documents[1:]]

    def answers(self):
        return Answers.of(self.anchors, self.documents, (self.more[0], self.more[1]))

    def separate(self, answers=None):
        answers = answers or self.answers()
        codes = (repeated_codes(answers.anchors), repeated_codes(answers.documents[0]))
        return Apart.of([own for own in codes if own.max() >= 0], answers)

    def known(self):
        """bool (n, n): whether a document of row j is a known answer of the anchor of row i."""
        listed = {*zip(self.anchors, self.documents[0], strict=True), *zip(*self.more, strict=True)}
        answers = {anchor: [d for a, d in listed if a == anchor] for anchor in {*self.anchors}}
        found = [np.isin(self.documents, answers[anchor]).any(axis=0) for anchor in self.anchors]
        return np.array(found) & ~np.eye(len(found), dtype=bool)

    def arrays(self):
        return (
            {"x": self.x, "y": self.y, "negatives": np.stack(self.negatives, 1)}
            if len(self.negatives)
            else {"x": self.x, "y": self.y}
        )

    def table(self, path, missing=None):
        """Write the ids of all rows, and the other answers; return the options."""
        ids = {"a": self.anchors, "p": self.documents[0]}
        ids |= {f"n{k}": own for k, own in enumerate(self.documents[1:])}
        texts = {k: [f"id {v}" if v >= 0 else missing for v in own] for k, own in ids.items()}
        pq.write_table(pa.table(texts), path)
        known = path.with_name("known.tsv")
        lines = [f"id {a}\tid {d}\t1" for a, d in self.more.T]
        known.write_text("\n".join(["query-id\tcorpus-id\tscore", *lines, "none\tid 0\t1"]) + "\n")
        named = {"anchor_id": "a", "positive_id": "p", "known": str(known)}
        negatives = {"negative_id": [*ids][2:]} if self.negatives else {}
        return named | negatives | {"label_table": str(path)}


def collisions(known, rows, offsets):
    """Count the pairs of rows that meet although a document of one answers the other."""
    batches = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    meet = np.triu(batches[:, None] == batches, 1)
    between = (known | known.T)[rows[:, None], rows]
    return int((meet & between).sum())


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("negatives", "more"), [(0, 0), (0, 9), (2, 0), (1, 7)])
def test_pairs_are_those_of_the_definition(seed, negatives, more):
    graph = Graph(seed, 30, (12, 14), negatives, more)
    known, separate, n = graph.known(), graph.separate(), 30
    both = known | known.T
    found = [[i != j and apart(i, j, separate) for j in range(n)] for i in range(n)]
    assert np.array_equal(found, both)
    i, j = map(torch.from_numpy, np.nonzero(~np.eye(n, dtype=bool)))
    tensors = tuple(map(torch.from_numpy, separate))
    assert np.array_equal(separated(tensors, i, j), both[i, j])
    assert graph.answers().num_negatives == sum(
        sum((graph.anchors[i], own) in set(zip(*np.divmod(graph.answers().pairs,
        graph.answers().width), strict=True)) for own in graph.documents[:, j])
        for i, j in itertools.permutations(range(n), 2)
    )  # fmt: skip
    rows = np.sort(np.random.default_rng(seed).permutation(n)[:17])
    some = graph.separate(graph.answers().take(rows))
    found = [[i != j and apart(i, j, some) for j in range(17)] for i in range(17)]
    assert np.array_equal(found, both[np.ix_(rows, rows)])


@pytest.mark.parametrize("seed", range(8))
def test_vectors_and_ids_show_the_same(seed, tmp_path):
    graph = Graph(seed, 40, (15, 18), negatives=seed % 3, more=6 * (seed % 2))
    embeddings = Embeddings.from_arrays(**graph.arrays())
    by_vectors = answers_of(embeddings)
    options = GuardOptions(**graph.table(tmp_path / "ids.parquet"))
    by_ids = answers_of(embeddings, options, equal=False)
    n = len(graph.anchors)
    both = graph.known() | graph.known().T
    for answers, expected in ((by_ids, both), (by_vectors, None)):
        separate = graph.separate(answers)
        found = np.array([[i != j and apart(i, j, separate) for j in range(n)] for i in range(n)])
        if expected is None:
            graph.more = np.empty((2, 0), np.int64)
            expected = graph.known() | graph.known().T
        assert np.array_equal(found, expected)


def fewest(between, sizes):
    """The fewest pairs of adjacent rows in batches of these sizes, of all ways to fill them."""
    masks = [sum(1 << int(j) for j in np.flatnonzero(row)) for row in between]

    def least(left, sizes):
        if not sizes:
            return 0
        rows = [row for row in range(len(masks)) if left >> row & 1]
        best = len(masks) ** 2
        for chosen in itertools.combinations(rows, sizes[0]):
            if sizes[0] == sizes[-1] and chosen[0] != rows[0]:
                continue  # the batches of one size are alike
            batch = sum(1 << row for row in chosen)
            cost = sum((masks[row] & batch).bit_count() for row in chosen) // 2
            best = min(best, cost + least(left & ~batch, sizes[1:]))
        return best

    return least((1 << len(masks)) - 1, list(sizes))


@pytest.mark.parametrize("seed", range(40))
def test_the_fewest_meet_if_some_must(seed):
    rng = np.random.default_rng(seed)
    n, size = int(rng.integers(6, 10)), int(rng.integers(2, 5))
    graph = Graph(seed, n, rng.integers(3, n + 1, 2), int(seed % 4 == 0), int(rng.integers(0, 4)))
    n, known = len(graph.anchors), graph.known()
    sizes = [size] * (n // size) + [n % size] * (n % size > 0)
    offsets, order = np.append(0, np.cumsum(sizes)), rng.permutation(n)
    wanted = fewest(known | known.T, sizes)
    for way in (filled, mended):
        rows = way(order, offsets, graph.separate(), np.random.default_rng(seed))
        left = left_together(rows, offsets, graph.separate())
        assert sorted(rows) == list(range(n))
        assert left == collisions(known, rows, offsets) == wanted


@pytest.mark.parametrize("repeats", [0, 10])
@pytest.mark.parametrize("seed", range(2))
def test_large_batches_are_looked_up(seed, repeats, monkeypatch):
    """With the rows that a comparison of all finds; also if rows are in several batches."""
    graph = Graph(seed, 1500, (6000, 6000), negatives=seed, more=4000)
    rng, separate, offsets = np.random.default_rng(seed), graph.separate(), np.arange(6) * 300
    order = rng.permutation(1500)
    order[1500 - repeats :] = order[:repeats]
    found = []
    for scanned in (1, 10**6)[: 1 if repeats else 2]:
        monkeypatch.setattr(separation, "_SCANNED", scanned)
        rows = mended(order, offsets, separate, np.random.default_rng(seed))
        left = left_together(rows, offsets, separate)
        assert left == collisions(graph.known(), rows, offsets) == 0
        assert all(len(set(batch)) == 300 for batch in np.split(rows, 5))
        assert sorted(rows) == sorted(order)
        found.append(rows)
    assert np.array_equal(found[0], found[-1])


WAYS = [
    ("random", {"guard": True}),
    ("random", {"guard": True, "tail": "pad"}),
    ("shuffled", {"guard": True, "epoch": 3, "refine": 1}),
    ("partition", {}),
    ("partition", {"mega_batches": 3, "guard_penalty": 0.0}),
    ("partition", {"world_size": 2, "scope": "global", "batch_size": 5, "tail": "drop"}),
    ("partition", {"tail": "pad", "relative_margin": None, "max_score": 5.0}),
    ("partition", {"mega_batches": 4, "batch_size": 9, "tail": "pad", "max_score": -0.5}),
    ("partition", {"mega_batches": 6, "batch_size": 7, "world_size": 2, "tail": "pad"}),
    ("random", {"guard": True, "batch_size": 9, "world_size": 2, "scope": "global", "tail": "pad"}),
    ("gcbs", {}),
    ("gcbs", {"batch_size": 11, "tail": "pad"}),
    ("gcbs", {"max_score": 0.7, "batch_order": "shuffled"}),
    ("rwr", {"coverage": "partition"}),
    ("chain", {}),
    ("refine", {}),
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("planner", "options"), WAYS, ids=str)
def test_planners(planner, options, seed, tmp_path):
    """By equal vectors and, with other answers, by ids."""
    graph = Graph(seed, 240, (150, 160), more=0 if seed == 0 else 60)
    ids = {} if seed == 0 else graph.table(tmp_path / "ids.parquet")
    options = {"batch_size": 10, **options, **ids, "device": "cpu", "seed": seed}
    if planner == "refine":
        del options["batch_size"]
        first = batchplan.plan(graph.x, graph.y, planner="random", batch_size=10)
        assert collisions(graph.known(), first.rows, first.batch_offsets)
        made = batchplan.refine(first, graph.x, graph.y, **options)
    else:
        made = batchplan.plan(graph.x, graph.y, planner=planner, **options)
    assert collisions(graph.known(), made.rows, made.batch_offsets) == 0


@pytest.mark.parametrize("seed", range(6))
def test_small_mega_batches_and_what_they_count(seed):
    """Rows that one mega-batch cannot separate go to another; `broken_pairs` stays exact."""
    graph = Graph(seed, 48, (30, 30))
    made = batchplan.plan(graph.x, graph.y, batch_size=4, mega_batches=3, planner="partition",
                          max_score=-0.2, guard_penalty=0.0, seed=seed, device="cpu")  # fmt: skip
    assert collisions(graph.known(), made.rows, made.batch_offsets) == 0
    judged = batchplan.evaluate(made, graph.x, graph.y, device="cpu")
    assert judged.guard.max_score == -0.2
    assert judged.guard.broken == made.metadata.metrics["broken_pairs"] > 0


@pytest.mark.parametrize("tail", ["pad", "drop"])
@pytest.mark.parametrize("guard", [{"max_score": 0.5}, {"guard": False}], ids=str)
@pytest.mark.parametrize("named", [{"group_column": "a"}, {"anchor_id": "a"}], ids=str)
def test_a_tail_is_separated_and_counted(tail, guard, named, tmp_path):
    """A padded batch brings the last rows together again; a dropped one has no pairs."""
    graph = Graph(3, 101, (40, 101))
    graph.table(tmp_path / "ids.parquet")
    options = {**named, **guard, "label_table": str(tmp_path / "ids.parquet"), "device": "cpu"}
    x, y = np.random.default_rng(0).standard_normal((2, 101, 16)).astype(np.float32)
    y += x
    made = batchplan.plan(x, y, planner="partition", batch_size=16, tail=tail, **options)
    same = np.equal.outer(graph.anchors, graph.anchors) & ~np.eye(101, dtype=bool)
    assert collisions(same, made.rows, made.batch_offsets) == 0
    if "max_score" in guard:
        groups = graph.anchors if "group_column" in named else None
        judged = batchplan.evaluate(made, x, y, groups=groups, device="cpu").guard
        assert made.metadata.metrics["broken_pairs"] == judged.broken > 0
    else:
        assert made.metadata.metrics["broken_pairs"] == 0


@pytest.mark.parametrize("planner", ["partition", "random"])
def test_mined_negatives_are_documents_too(planner):
    graph = Graph(1, 200, (120, 130), negatives=2)
    made = batchplan.plan(**graph.arrays(), planner=planner, batch_size=8, guard=True, device="cpu")
    assert collisions(graph.known(), made.rows, made.batch_offsets) == 0


@pytest.mark.parametrize(
    ("planner", "options"),
    [
        ("hardneg", {"guard": True, "per_row": 3}),
        ("scns", {"per_row": 3, "top_k": 20}),
        ("scns", {"per_row": 3, "level": "class", "label_column": "p"}),
    ],
)
def test_no_mined_negative_is_a_known_answer(planner, options, tmp_path):
    graph = Graph(2, 150, (60, 70), more=200)
    options |= graph.table(tmp_path / "ids.parquet")
    table = batchplan.mine_negatives(graph.x, graph.y, planner=planner, device="cpu", **options)
    assert not graph.known()[table.anchors[:, None], table.negatives].any()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("planner", "options"),
    [
        ("hardneg", {"guard": True}),
        ("hardneg", {"guard": True, "per_row": 3, "tail": "pad"}),
        ("scns", {"per_row": 2, "top_k": 20}),
        ("scns", {"per_row": 1, "level": "class", "label_column": "p"}),
    ],
)
def test_batches_of_anchors_and_their_negatives_have_none(planner, options, seed, tmp_path):
    """Nor between anchors, nor between an anchor and the negative of another one."""
    graph = Graph(seed, 300, (130, 140), more=200)
    own = options | graph.table(tmp_path / "ids.parquet")
    made = batchplan.plan(graph.x, graph.y, planner=planner, as_batches=True, batch_size=9,
                          seed=seed, device="cpu", **own)  # fmt: skip
    assert len(np.unique(made.rows)) == len(graph.anchors)
    assert collisions(graph.known(), made.rows, made.batch_offsets) == 0
    assert all(len(set(batch)) == len(batch) for batch in made)


def test_hubs_take_memory_of_the_rows():
    """A document with 10,000 anchors, each with another document."""
    n = 20_000
    anchors, documents = np.arange(n) % (n // 2), np.where(np.arange(n) < n // 2, 0, np.arange(n))
    separate = Apart.of(
        [repeated_codes(documents)], answers := Answers.of(anchors, documents[None])
    )
    assert sum(part.size for part in separate) < 8 * n
    assert answers.num_negatives == (n // 2) * (n // 2 - 1) + n // 2 * (n // 2 + 1)


QRELS = {
    "known.tsv": "query-id\tcorpus-id\tscore\nq1\td2\t1\nq1\td3\t0\n",
    "qrels.txt": "q1 0 d2 1\nq1 0 d3 0\n",
    "tabs.txt": "q1\tQ0\td2\t2\nq1\tQ0\td3\t-1\n",
}


def test_files_of_both_sides_may_name_their_ids_alike(tmp_path):
    vectors = list(np.eye(4, dtype=np.float32))
    for side, keys in (("x", [1, 2, 3, 4]), ("y", [7, 8, 7, 9])):
        pq.write_table(pa.table({"key": keys, "v": vectors}), tmp_path / f"{side}.parquet")
    data = batchplan.load_embeddings(tmp_path / "x.parquet", tmp_path / "y.parquet")
    found = answers_of(data, GuardOptions(anchor_id="key", positive_id="key"), equal=False)
    assert found.anchors.tolist() == [0, 1, 2, 3]
    assert found.documents.tolist() == [[0, 1, 0, 3]]


@pytest.mark.parametrize("name", [*QRELS, "score.parquet", "relevance.parquet"])
def test_lists(name, tmp_path):
    path = tmp_path / name
    if name in QRELS:
        path.write_text(QRELS[name])
    else:
        columns = {"query-id": ["q1", "q1"], "corpus-id": ["d2", "d3"], path.stem: [1, 0]}
        pq.write_table(pa.table(columns), path)
    ids = pa.table({"a": ["q1", "q2", "q3"], "p": ["d1", "d2", "d3"]})
    pq.write_table(ids, tmp_path / "ids.parquet")
    rows = Embeddings.from_arrays(np.eye(3, dtype=np.float32))
    options = GuardOptions(
        anchor_id="a", positive_id="p", known=str(path), label_table=str(tmp_path / "ids.parquet")
    )
    pairs = answers_of(rows, options, equal=False)
    found = np.stack(np.divmod(pairs.pairs, pairs.width), 1)
    assert found.tolist() == [[0, 0], [0, 1], [1, 1], [2, 2]]


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        (
            "001 0 11 1\n",
            r"none of its anchors is one of the rows \(it has '001', the rows have '1'\)",
        ),
        ("1 0 d11 1\n", r"none of its documents .*'d11', the rows have '11'"),
        ("11 0 1 1\n", "none of its anchors .*, the anchor's first"),
        ("7 0 11 1\n1 0 12 1\n", None),
    ],
)
def test_a_list_of_other_ids_is_reported(listed, said, tmp_path, recwarn):
    (tmp_path / "known.txt").write_text(listed)
    pq.write_table(pa.table({"a": [1, 2], "p": [11, 12]}), tmp_path / "ids.parquet")
    files = {name: str(tmp_path / file) for name, file in
             {"known": "known.txt", "label_table": "ids.parquet"}.items()}  # fmt: skip
    rows = Embeddings.from_arrays(np.eye(2, dtype=np.float32))
    answers_of(rows, GuardOptions(anchor_id="a", positive_id="p", **files), equal=False)
    warned = [str(one.message) for one in recwarn]
    assert re.search(said, warned[0]) if said else not warned


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("q1,d1\n", "got 'q1,d1' as the first line, expected a Parquet file"),
        ("q1 0 d1 1\nq1 d1\n", "Expected 4 columns, got 2"),
        ("q1\td1\tyes\nq1\td1\tyes\n", "invalid value"),
    ],
)
def test_lists_that_cannot_be_read(text, said, tmp_path):
    (tmp_path / "known.txt").write_text(text)
    pq.write_table(pa.table({"a": [1, 2], "p": [1, 2]}), tmp_path / "ids.parquet")
    named = {"anchor_id": "a", "positive_id": "p", "label_table": str(tmp_path / "ids.parquet")}
    with pytest.raises(InputError, match=said):
        batchplan.plan(
            np.eye(2), planner="random", batch_size=2, known=str(tmp_path / "known.txt"), **named
        )


@pytest.mark.parametrize("scores", [["1"], [True], [[1]], [None]], ids=str)
def test_scores_that_are_no_numbers(scores, tmp_path):
    path = tmp_path / "known.parquet"
    pq.write_table(pa.table({"a": [1], "p": [2], "score": scores}), path)
    with pytest.raises(InputError, match=r"column 'score': got \w+.*, expected numbers"):
        read_known(path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"known": "a.tsv"}, "known: given without --anchor-id and --positive-id"),
        ({"known": "a.tsv", "anchor_id": "a"}, "known: given without"),
        ({"negative_id": ["n"]}, "negative id: given without --positive-id"),
        ({"label_table": "t.parquet"}, "without --group-column or --anchor-id"),
    ],
)
def test_options_that_contradict_each_other(options, said):
    with pytest.raises(OptionError, match=said):
        GuardOptions(**options)


@pytest.mark.parametrize("seed", range(6))
def test_evaluate_counts_them(seed, tmp_path):
    """Beside the expectation for random batches, with the rows that meet the most. A missing
    negative is no document, also if it has an id."""
    graph = Graph(seed, 90, (30, 35), negatives=seed % 2, more=40 * (seed // 2))
    for vectors, own in zip(graph.negatives, graph.documents[1:], strict=True):
        vectors[::3], own[::3] = 0, -1
    padded = "id 1" if seed > 3 else None
    ids = graph.table(tmp_path / "ids.parquet", padded) if seed // 2 else {}
    arrays, offsets = graph.arrays(), np.arange(0, 91, 9)
    plan = batchplan.plan(**arrays, planner="random", batch_size=9, seed=seed)
    found = batchplan.evaluate(plan, **arrays, device="cpu", **ids).answers
    listed = {*zip(graph.anchors, graph.documents[0], strict=True), *zip(*graph.more, strict=True)}
    met = np.array(
        [[i != j and sum((a, d) in listed for d in graph.documents[:, j]) for j in range(90)]
         for i, a in enumerate(graph.anchors)]
    )  # fmt: skip
    present = (graph.documents >= 0).sum()
    in_batches = [met[np.ix_(rows, rows)].sum(axis=1) for rows in plan.rows.reshape(10, 9)]
    counts = dict(zip(plan.rows.tolist(), np.concatenate(in_batches).tolist(), strict=True))
    assert np.array_equal(plan.batch_offsets, offsets)
    assert (found.known, found.negatives) == (sum(counts.values()), 8 * present)
    assert found.share_random == pytest.approx(met.sum() / (89 * present))
    assert [one.negatives for one in found.examples] == sorted(counts.values())[:-11:-1][
        : len(found.examples)
    ]
    assert all(
        counts[one.row] == one.negatives and met[one.row, one.other] for one in found.examples
    )


def test_scns_draws_equal_rows_only_if_there_are_no_others():
    """Ids are answers at any cost; that rows are equal is no more than a guess."""
    x = np.ones((8, 4), np.float32)
    observer = Observer()
    table = batchplan.mine_negatives(
        x, x, planner="scns", per_row=2, batch_size=4, observer=observer
    )
    assert "equal rows may be negatives of each other" in str(observer.notes)
    assert table.negatives.shape == (8, 2)
    assert (table.negatives != np.arange(8)[:, None]).all()
    half = np.repeat(np.eye(4, dtype=np.float32)[:2], 4, axis=0)
    table = batchplan.mine_negatives(half, half, planner="scns", per_row=2, batch_size=4)
    assert (table.negatives // 4 != np.arange(8)[:, None] // 4).all()


@pytest.mark.parametrize("seed", range(3))
def test_evaluations_count_listed_answers_among_false_negatives(seed, tmp_path):
    graph = Graph(seed, 120, (80, 90), more=60)
    made = batchplan.plan(graph.x, graph.y, planner="random", batch_size=10, seed=seed)
    ids, between = graph.table(tmp_path / "ids.parquet"), graph.known() | graph.known().T
    found = batchplan.evaluate(made, graph.x, graph.y, max_score=2.0, **ids, device="cpu").guard
    equal = graph.anchors[:, None] == graph.anchors, graph.documents[0][:, None] == graph.documents
    duplicates = equal[0] | equal[1]
    meets = collisions(between, made.rows, made.batch_offsets)
    twice = collisions(between & duplicates, made.rows, made.batch_offsets)
    assert found.by | {"group": 0} == {
        "similarity": 0, "group": 0, "duplicate": twice, "known": meets - twice
    }  # fmt: skip
    assert found.broken == meets > twice
    assert found.false_negatives_random == pytest.approx(between.sum() / (120 * 119))
