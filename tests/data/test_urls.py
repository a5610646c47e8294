"""Shards behind URLs: the same embeddings as from a folder. The file system is one of pyarrow over
a folder; tests/ray has an object store."""

import json
import os
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from batchplan import InputError, load_embeddings
from batchplan.data import Candidates
from batchplan.data.labels import load_labels
from batchplan.data.load import open_again
from batchplan.data.texts import load_texts
from batchplan.files import remote
from batchplan.planners import plan
from batchplan.plans.output import check_output
from batchplan.runtime import Runtime
from tests.data.writers import DTYPES, SIDES, WRITERS, arrow, column, parquet
from tests.observing import Observer

X, Y = np.random.default_rng(0).standard_normal((2, 120, 6)).astype(np.float32)
PARTS = ("x02", "x10"), ("y02", "y10")


@pytest.fixture
def url(tmp_path, monkeypatch):
    """A function that gives the URL of a path in the folder."""
    system, real = SubTreeFileSystem(str(tmp_path), LocalFileSystem()), remote._file_system

    def file_system(url):
        return (system if url.startswith("mock:") else real(url)[0]), real(url)[1]

    monkeypatch.setattr(remote, "_file_system", file_system)
    return lambda name="": f"mock://host/{name}?scheme=http"


def same(found, expected):
    assert found.fingerprint == expected.fingerprint
    assert found.x.rows(0, 200).tobytes() == expected.x.rows(0, 200).tobytes()
    assert found.y.rows(0, 200).tobytes() == expected.y.rows(0, 200).tobytes()
    assert [shard.rows for shard in found.shards] == [shard.rows for shard in expected.shards]


def write_sides(folder, suffix, *, sides=(X, Y)):
    """Two shards of each side, x02 before x10, in folders of these names."""
    dtype = DTYPES.get(suffix, ("f4",))[0]
    for names, side in zip(PARTS, sides, strict=True):
        home = folder / names[0][0]
        home.mkdir()
        for name, part in zip(names, np.split(side, [50]), strict=True):
            WRITERS[suffix](home / f"{name}{suffix}", part.astype(dtype))


@pytest.mark.parametrize("suffix", WRITERS)
def test_the_same_embeddings(suffix, url, tmp_path):
    write_sides(tmp_path, suffix)
    expected = load_embeddings(tmp_path / "x", tmp_path / "y")
    same(load_embeddings(url("x"), url("y/")), expected)
    same(load_embeddings(url(f"x/x*{suffix}"), url("y")), expected)
    same(load_embeddings([url(f"x/{name}{suffix}") for name in PARTS[0]], tmp_path / "y"), expected)
    same(load_embeddings(f"file://{tmp_path}/x", f"file://{tmp_path}/y/*"), expected)
    found = load_embeddings(url("x"), url("y"))
    assert [shard.path for shard in found.shards[:2]] == [
        f"mock://x/x02{suffix}",
        f"mock://x/x10{suffix}",
    ]


@pytest.mark.parametrize("suffix", SIDES)
def test_both_sides_in_a_file(suffix, url, tmp_path):
    SIDES[suffix](tmp_path / f"pairs{suffix}", X, Y)
    expected = load_embeddings(tmp_path / f"pairs{suffix}")
    same(load_embeddings(url(f"pairs{suffix}")), expected)
    same(load_embeddings(url()), expected)  # the root


@pytest.mark.parametrize(
    "convert",
    [np.asfortranarray, lambda side: side.astype(">f4"), lambda side: side.astype("f8")],
    ids=["columns", "big-endian", "float64"],
)
def test_what_is_converted(convert, url, tmp_path):
    np.save(tmp_path / "x.npy", convert(X))
    expected = load_embeddings(tmp_path / "x.npy", single=True)
    same(load_embeddings(url("x.npy"), single=True), expected)


def test_special_characters_of_a_name(url, tmp_path):
    np.save(tmp_path / "a@b?c %.npy", X)
    found = load_embeddings(url("a%40b%3Fc%20%25.npy"), single=True)
    assert found.shards[0].path == "mock://a@b?c %.npy"
    same(load_embeddings(url(), single=True), found)
    with pytest.raises(InputError, match="write @ in a path as %40"):
        load_embeddings(url("a@b.npy"), single=True)


def test_several_ranges_at_a_time(url, tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "_RANGE", 100)  # 4 rows and a bit
    np.save(tmp_path / "x.npy", X)
    same(load_embeddings(url("x.npy"), single=True), load_embeddings(tmp_path, single=True))


def test_saved_data_sets(url, tmp_path):
    saved = tmp_path / "saved"
    saved.mkdir()
    for name, rows in (("b", slice(50)), ("a", slice(50, None))):  # in an order of its own
        arrow(saved / f"{name}.arrow", X[rows], Y[rows])
    files = [{"filename": f"{name}.arrow"} for name in "ba"]
    (saved / "state.json").write_text(json.dumps({"_data_files": files}))
    same(load_embeddings(url("saved")), load_embeddings(saved))


def test_labels_of_their_files_and_of_a_table(url, tmp_path):
    columns = {"x": column(X), "y": column(Y), "g": np.arange(120) % 7}
    texts = [f"text {row}" for row in range(120)]
    pq.write_table(pa.table({**columns, "t": texts}), tmp_path / "pairs.parquet")
    data, expected = load_embeddings(url("pairs.parquet")), np.arange(120) % 7
    assert load_labels("g", data).tolist() == expected.tolist()
    assert load_labels("g", data, url("pairs.parquet")).tolist() == expected.tolist()
    found = load_texts("t", data, np.arange(3), url("pairs.parquet"))
    assert [*found.values()] == texts[:3]


@pytest.mark.parametrize(("suffix", "left"), [(".npy", 9_000), (".parquet", 30_000)])
def test_more_than_memory_holds_goes_to_temporary_files(suffix, left, url, tmp_path, monkeypatch):
    write_sides(tmp_path, suffix)
    expected, observer = load_embeddings(tmp_path / "x", tmp_path / "y"), Observer()
    monkeypatch.setattr(Runtime, "memory_left", lambda *_: left)
    same(load_embeddings(url("x"), url("y"), observer=observer), expected)
    assert [note[:23] for note in observer.notes] == ["temporary file: 5.8 KB "]


def test_another_process_opens_the_same(url, tmp_path):
    write_sides(tmp_path, ".npy")
    os.utime(tmp_path / "y" / "y10.npy", (10**9, 10**9))  # the clock of files may tick slowly
    data = load_embeddings(url("x"), url("y"))
    origin = pickle.loads(pickle.dumps(data.origin))
    x, y = open_again(origin)
    assert x.matrix.rows(0, 200).tobytes() == X.tobytes()
    assert y.matrix.rows(0, 200).tobytes() == Y.tobytes()
    np.save(tmp_path / "y" / "y10.npy", Y[50:])
    with pytest.raises(InputError, match=r"^mock://y/y10.npy: was written to while it was in use"):
        open_again(origin)


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_written_to_while_it_is_read(suffix, url, tmp_path):
    WRITERS[suffix](tmp_path / f"x{suffix}", X)
    os.utime(tmp_path / f"x{suffix}", (10**9, 10**9))
    observer = Observer()
    observer.start = lambda *_: WRITERS[suffix](tmp_path / f"x{suffix}", X[::-1].copy())
    with pytest.raises(InputError, match=rf"^mock://x{suffix}: was written to while it was in use"):
        load_embeddings(url(f"x{suffix}"), single=True, observer=observer)


def test_the_plan_does_not_know_where_the_data_were(url, tmp_path):
    write_sides(tmp_path, ".npy")
    options = {"batch_size": 8, "device": "cpu", "mega_batches": 2}
    expected = plan(load_embeddings(tmp_path / "x", tmp_path / "y"), planner="partition", **options)
    found = plan(load_embeddings(url("x"), url("y")), planner="partition", **options)
    assert found.rows.tolist() == expected.rows.tolist()
    assert found.metadata == expected.metadata


def cut(path):
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize(
    ("name", "spoil", "parts"),
    [
        ("x.npy", cut, ("got 2998 bytes, expected 3008", "cut short")),
        ("x.npy", lambda path: path.write_bytes(b""), ("empty file",)),
        ("x.npy", lambda path: path.write_bytes(b"x" * 99), ("expected an NPY file",)),
        ("x.parquet", cut, ("cannot be read as Parquet",)),
        ("x.parquet", lambda path: path.write_bytes(b""), ("empty file",)),
        ("x.npy", lambda path: path.unlink(), ("no such file or folder",)),
        ("none/x.npy", None, ("no such file or folder",)),
        ("*.arrow", None, ("no .npy, .parquet", "check the path")),
        ("no*/x.npy", None, ("a glob of folders",)),
        ("", lambda path: path.rename(path.with_suffix(".txt")), ("no .npy",)),
        ("x.txt", lambda path: path.with_name("x.txt").touch(), ("got suffix .txt",)),
    ],
)
def test_what_cannot_be_read(name, spoil, parts, url, tmp_path):
    path = tmp_path / ("x.parquet" if name == "x.parquet" else "x.npy")
    WRITERS[path.suffix](path, X)
    if spoil:
        spoil(path)
    with pytest.raises(InputError) as error:
        load_embeddings(url(name), single=True)
    message = str(error.value)
    assert all(part in message for part in parts), message
    assert message.startswith("mock://")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("foo://bucket/x.npy", "Unrecognized filesystem"),
        ("s3://bucket/x[1].npy", "escaped (a space is %20)"),
        ("gs://anonymous@b/x?retry_limit_seconds=a", "retry_limit_seconds must be"),
        ("file://host/x.npy", "Unsupported hostname"),
    ],
)
def test_what_no_file_system_opens(name, part):
    with pytest.raises(InputError, match="cannot be opened") as error:
        load_embeddings(name, single=True)
    assert part in str(error.value)


def test_deflated_arrays(url, tmp_path):
    np.savez_compressed(tmp_path / "x.npz", x=X, y=Y)
    same(load_embeddings(url("x.npz")), load_embeddings(X, Y))


@pytest.mark.filterwarnings("default:.*one matrix")
def test_messages_name_urls(url, tmp_path):
    np.save(tmp_path / "x.npy", X)
    with pytest.warns(UserWarning, match=r"^mock://host/x.npy\?scheme=http: one matrix"):
        load_embeddings(url("x.npy"))
    with pytest.raises(InputError, match="is repeated"):
        load_embeddings([url("x.npy"), url("x.npy")], single=True)
    with pytest.raises(InputError, match="look like the two sides of pairs"):
        load_embeddings([url("x.npy"), tmp_path / "x.npy"])


@pytest.mark.parametrize("name", ["s3://bucket/plan.npy?region=eu", "gs://b/p.npz"])
def test_outputs_are_local(name):
    with pytest.raises(InputError, match="is a URL, expected a path"):
        check_output(name)


def test_an_input_by_url_is_not_overwritten(tmp_path):
    parquet(tmp_path / "x.parquet", X, Y)
    for name in (f"file://{tmp_path}/x.parquet", f"file://{tmp_path}", f"file://{tmp_path}/*"):
        with pytest.raises(InputError, match="would overwrite or join"):
            check_output(tmp_path / "x.parquet", force=True, inputs=["s3://bucket/y.npy", name])


def test_candidates(url, tmp_path):
    lists = {"ids": [[1], [0]], "scores": [[0.5], [0.5]], "positive": [0.9, 0.9]}
    pq.write_table(pa.table(lists), tmp_path / "lists.parquet")
    found = Candidates.load(url("lists.parquet"))
    assert found.fingerprint == Candidates.load(tmp_path / "lists.parquet").fingerprint
    with pytest.raises(InputError, match=r"^mock://none.parquet: no such file or folder; check"):
        Candidates.load(url("none.parquet"))


def test_embeddings_behind_urls_are_not_taken_for_plans():
    from batchplan.cli.options import refuse_plans

    refuse_plans(["s3://bucket/x.parquet", "s3://bucket/x.npy"], "embeddings")
