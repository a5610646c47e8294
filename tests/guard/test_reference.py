"""A reference: embeddings of another model, by which guards are judged."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import batchplan
from batchplan import InputError
from batchplan.cli.app import app
from batchplan.data import Embeddings
from batchplan.guard.options import GuardOptions
from batchplan.planners import PLANNERS
from batchplan.planners.common.options import TableOptions
from batchplan.plans import Plan
from tests.dense import unit

N = 96
GUARDED = [
    name
    for name, one in PLANNERS.items()
    if issubclass(one.options, GuardOptions) and not issubclass(one.options, TableOptions)
]
SAME = ("reference", "relative_margin", "broken", "loss_train")
LIMIT = {"relative_margin": 0.3, "guard_penalty": np.inf}


def sides(d, seed, paired=True, n=N):
    """Rows in small clusters, so that there are false negatives."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n // 4, d))[rng.permutation(n) // 4] + 0.3 * rng.standard_normal(
        (n, d)
    )
    y = x + 0.3 * rng.standard_normal((n, d))
    return [side.astype(np.float32) for side in ((x, y) if paired else (x,))]


def written(folder, name, arrays):
    """The names of NPY files."""
    paths = [folder / f"{name}-{side}.npy" for side in "xy"[: len(arrays)]]
    for path, array in zip(paths, arrays, strict=True):
        np.save(path, array)
    return [str(path) for path in paths]


@pytest.fixture
def data():
    return batchplan.load_embeddings(*sides(12, 0))


@pytest.fixture
def reference(tmp_path):
    """Options that name one of another model, with fewer dimensions, and its rows."""
    arrays = [side.astype(np.float16) for side in sides(6, 1)]
    x, y = written(tmp_path, "reference", arrays)
    return {"reference": [x], "reference_pair": [y]}, arrays


def broken(arrays, plan, margin):
    """Pairs of a plan that these rows find too similar."""
    S = unit(arrays[0]) @ unit(arrays[-1]).T
    own = np.diag(S)
    own = np.maximum(own, sorted(own)[(len(own) - 1) // 2])
    ceiling = own - margin * np.abs(own)
    high = np.maximum(S, S.T) >= np.minimum(ceiling[:, None], ceiling)
    np.fill_diagonal(high, False)
    return sum(int(high[np.ix_(batch, batch)].sum()) for batch in plan.batches()) // 2


@pytest.mark.parametrize("planner", GUARDED)
def test_planners_keep_apart_what_it_finds_too_similar(data, reference, planner):
    files, arrays = reference
    options = {"batch_size": 8, "device": "cpu", **LIMIT}
    own, other = (batchplan.plan(data, planner=planner, **options, **ways) for ways in ({}, files))
    assert broken(arrays, other, 0.3) == other.metadata.metrics["broken_pairs"]
    assert broken(arrays, other, 0.3) * 5 < broken(arrays, own, 0.3)
    fingerprint = Embeddings.from_arrays(*arrays).fingerprint
    assert other.metadata.options["reference"] == fingerprint
    assert other.metadata.options["reference_pair"] is None
    assert own.metadata.options["reference"] is None
    assert other.metadata.fingerprint == data.fingerprint


@pytest.mark.parametrize("passes", [0, 2])
def test_refine(data, reference, passes):
    files, arrays = reference
    plan = batchplan.plan(data, planner="random", batch_size=8)
    refined = batchplan.refine(plan, data, passes=passes, device="cpu", **LIMIT, **files)
    assert refined.metadata.options["reference"].startswith("b2:")
    if passes:
        left = broken(arrays, refined, 0.3)
        assert left == refined.metadata.metrics["broken_pairs"] < broken(arrays, plan, 0.3) / 5


@pytest.mark.parametrize(
    "ways",
    [
        {"mega_batches": 1},
        {"mega_batches": 3},
    ],
    ids=str,
)
@pytest.mark.parametrize("paired", [True, False])
def test_one_equal_to_the_data_changes_nothing(tmp_path, monkeypatch, ways, paired):
    monkeypatch.chdir(tmp_path)
    arrays = sides(12, 0, paired)
    embeddings = batchplan.load_embeddings(*arrays, single=not paired)
    x, *y = written(tmp_path, "same", arrays)
    files = {"reference": [x], "reference_pair": y or None}
    plans = [
        batchplan.plan(embeddings, batch_size=8, device="cpu", **ways, **more)
        for more in ({}, files)
    ]
    assert np.array_equal(plans[0].rows, plans[1].rows)
    assert plans[0].metadata.metrics == plans[1].metadata.metrics


def test_threads_do_not_matter(data, reference, use_threads):
    files, _ = reference
    found = []
    for threads in (1, 3):
        use_threads(threads)
        found.append(batchplan.plan(data, batch_size=8, device="cpu", **files))
    assert np.array_equal(found[0].rows, found[1].rows)


def test_shards_and_ids(tmp_path):
    """In Parquet, in two shards, with ids of another type."""
    x, y = sides(12, 0)
    ids = np.arange(N) + 7
    table = pa.table({"id": ids, "x": list(x), "y": list(y)})
    pq.write_table(table, tmp_path / "data.parquet")
    data = batchplan.load_embeddings(tmp_path / "data.parquet")
    a, b = sides(6, 1)
    folder = tmp_path / "reference"
    folder.mkdir()
    for part in (slice(0, 40), slice(40, N)):
        columns = {"id": ids[part].astype(str), "a": list(a[part]), "b": list(b[part])}
        pq.write_table(pa.table(columns), folder / f"{part.start}.parquet")
    whole = batchplan.plan(data, batch_size=8, device="cpu", reference=[str(folder)])
    x_file, y_file = written(tmp_path, "npy", [a, b])
    files = {"reference": [x_file], "reference_pair": [y_file]}
    same = batchplan.plan(data, batch_size=8, device="cpu", **files)
    assert np.array_equal(whole.rows, same.rows)
    assert whole.metadata == same.metadata
    columns = {"id": ids[::-1].astype(str), "a": list(a), "b": list(b)}
    pq.write_table(pa.table(columns), tmp_path / "turned.parquet")
    with pytest.raises(InputError) as error:
        batchplan.plan(data, batch_size=8, reference=[str(tmp_path / "turned.parquet")])
    said = "turned.parquet: the reference: got the ids of the data in another order, first at row 0"
    assert f"{said} ('102', expected 7)" in str(error.value)
    table = pa.table({"id": [f"d{one}" for one in ids], "a": list(a), "b": list(b)})
    pq.write_table(table, tmp_path / "turned.parquet")
    with pytest.raises(InputError, match=r"got other ids than the data, first at row 0 \('d7'"):
        batchplan.plan(data, batch_size=8, reference=[str(tmp_path / "turned.parquet")])
    table = table.set_column(0, "id", pa.array(ids.astype("datetime64[D]")))
    pq.write_table(table, tmp_path / "turned.parquet")
    with pytest.raises(InputError, match=r"int64 in .*data\.parquet and date32.* in .*turned"):
        batchplan.plan(data, batch_size=8, reference=[str(tmp_path / "turned.parquet")])


def test_refusals(data, reference, tmp_path):
    files, arrays = reference
    x, y = files["reference"][0], files["reference_pair"][0]
    short = written(tmp_path, "short", [side[:40] for side in arrays])
    zeros = written(tmp_path, "zeros", [np.where(np.arange(N)[:, None] == 5, 0, s) for s in arrays])
    one = batchplan.load_embeddings(sides(12, 0)[0], single=True)

    def said(embeddings=data, planner="partition", **options):
        with pytest.raises(InputError) as error:
            batchplan.plan(embeddings, planner=planner, batch_size=8, **options)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert said(reference=["gone.npy"]).startswith("reference gone.npy: gone.npy")
    assert "got 40 rows, expected 96" in said(reference=short[:1], reference_pair=short[1:])
    assert "rows of zeros" in said(reference=zeros[:1], reference_pair=zeros[1:])
    assert "got one matrix, expected both sides" in said(reference=[x])
    assert "(--reference-pair)" in said(reference=[x])
    assert "--reference-pair " in said(reference=[x, y])  # the files are named
    assert "reference" in said(one, **files)
    assert "without --reference" in said(reference_pair=[y])
    assert "without a limit to judge" in said(guard=False, **files)
    assert "without a limit to judge" in said(planner="gcbs", **files)
    assert "expected a list of text or None" in said(reference=x)


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments), "--device", "cpu"])


@pytest.fixture
def more(reference):
    """The reference on a command line."""
    files = reference[0]
    return ["--reference", files["reference"][0], "--reference-pair", files["reference_pair"][0]]


def facts(result):
    """What a command says, by name, the whole line."""
    assert result.exit_code == 0, result.output
    return dict(line.split(maxsplit=1) for line in result.stdout.splitlines() if " " in line)


def test_the_summary_judges_by_it(tmp_path, reference, more):
    x, y = written(tmp_path, "data", sides(12, 0))
    out = tmp_path / "plan.npz"
    made = run("partition", x, "--pair", y, *more, "-b", 8, "-o", out, "--json")
    assert made.exit_code == 0, made.output
    plan, share = Plan.load(out), json.loads(made.stdout)["gain"]["plan"]["false_negatives"]
    pairs = 12 * 8 * 7 // 2
    assert share == broken(reference[1], plan, 0.1) / pairs
    assert share != broken(sides(12, 0), plan, 0.1) / pairs


def test_measures_say_when_it_is_missing(tmp_path, more):
    x, y = written(tmp_path, "data", sides(12, 0))
    data, out, own = [x, "--pair", y], tmp_path / "plan.npz", tmp_path / "own.npz"
    for arguments in (["-o", out, *more], ["-o", own]):
        assert run("partition", *data, "-b", 8, *arguments).exit_code == 0
    without = facts(run("evaluate", out, *data))
    assert without["guard"] == "relative margin 0.1, as planned"
    assert without["warning"].startswith("the plan was made with a reference, but its guard is")
    assert without["warning"].endswith("name it again with --reference")
    right = facts(run("evaluate", out, *data, *more))
    assert right["guard"] == "relative margin 0.1 by the reference, as planned"
    assert "name it again" not in right.get("warning", "")
    gate = ["--fail-over", "false_negatives=1"]
    assert "name it again with --reference" in run("check", out, *data, *gate).output
    assert "name it again" not in run("check", out, *data, *gate, *more).output
    page = tmp_path / "page.html"
    assert run("report", out, own, *data, "-o", page).exit_code == 0
    assert "name it again with --reference" in page.read_text()


def test_a_comparison_judges_by_it(tmp_path, more):
    x, y = written(tmp_path, "data", sides(12, 0))
    said = facts(run("compare", x, "--pair", y, "-b", 8, "--planners", "partition", *more))["guard"]
    assert said == "relative margin 0.1 by the reference, as planned"


def test_command_line(tmp_path, more):
    x, y = written(tmp_path, "data", sides(12, 0))
    out, refined = tmp_path / "plan.npz", tmp_path / "refined.npz"
    common = [x, "--pair", y, *more]
    made = run("partition", *common, "-b", 8, "-o", out)
    assert made.exit_code == 0, made.output
    assert Plan.load(out).metadata.options["reference"].startswith("b2:")
    result = run("refine", out, *common, "--relative-margin", 0.2, "-o", refined)
    assert result.exit_code == 0, result.output
    result = run("evaluate", refined, *common, "--relative-margin", 0.2, "--json")
    assert result.exit_code == 0, result.output
    guard = json.loads(result.stdout)["guard"]
    assert guard["reference"] == Plan.load(out).metadata.options["reference"]
    result = run("evaluate", refined, *common, "--json")
    assert result.exit_code == 0, result.output
    again = json.loads(result.stdout)["guard"]  # by the limit of the plan
    assert {name: again[name] for name in SAME} == {name: guard[name] for name in SAME}
    assert run("evaluate", refined, *common, "--no-guard").exit_code == 3


def test_a_reference_that_excludes_too_much_judges_no_groups(tmp_path):
    """The default limit is left out, the groups stay."""
    x, y = sides(12, 0)
    files = written(tmp_path, "alike", [side + 30 for side in (x, y)])
    named = {"reference": files[:1], "reference_pair": files[1:]}
    plan = batchplan.plan(x, y, planner="random", batch_size=8)
    groups = np.arange(N) // 2
    found = batchplan.evaluate(plan, x, y, groups=groups, device="cpu", **named).guard
    alone = batchplan.evaluate(plan, x, y, groups=groups, device="cpu", guard=False).guard
    assert found.relative_margin is None
    assert (found.by, found.loss_global) == (alone.by, alone.loss_global)
