"""Embeddings that cannot be used: exit status 3, one line that says what and where, nothing done.

Each case makes real files in the working directory and returns the arguments that name them.
"""

import os
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.lib import format as npy_format
from typer.testing import CliRunner

from batchplan.cli.app import app

GOOD = np.random.default_rng(0).standard_normal((10, 4)).astype(np.float32)
CASES = {}


def case(*parts):
    """Register a function that makes the files; each part must be in the message."""

    def register(make):
        CASES[make.__name__] = (make, parts)
        return make

    return register


def save(name, array):
    Path(name).parent.mkdir(exist_ok=True)
    np.save(name, array)
    return name


def table(name="a.parquet", **columns):
    arrays = {
        key: column if isinstance(column, pa.Array) else pa.array(column)
        for key, column in columns.items()
    }
    pq.write_table(pa.table(arrays), name)
    return [name]


def vectors(rows=GOOD, kind=None):
    return pa.array([None if row is None else list(row) for row in rows], kind or F4)


F4 = pa.list_(pa.float32())


def header(name, shape):
    with open(name, "wb") as file:
        fields = {"descr": "<f4", "fortran_order": False, "shape": shape}
        npy_format.write_array_header_1_0(file, fields)
        file.write(GOOD.tobytes())
    return [name]


# Paths


@case("none.npy: no such file or folder; check the path")
def missing_path():
    return ["none.npy"]


@case("none.npy: no such file or folder")
def missing_pair():
    return [save("x.npy", GOOD), "--pair", "none.npy"]


@case("no*.npy: no .npy, .parquet", "file there")
def glob_without_match():
    return ["no*.npy"]


@case("embeddings: got an empty path", "expected a file, folder or glob")
def empty_path():
    return [""]


@case("pair: got an empty path")
def empty_pair():
    return [save("x.npy", GOOD), "--pair", ""]


@case("embeddings: standard input cannot be read twice; give a file or folder")
def standard_input():
    return ["-"]


@case("pair: standard input")
def standard_input_as_pair():
    return [save("x.npy", GOOD), "--pair", "-"]


@case("shards: no .npy, .parquet", "file there")
def folder_without_shards():
    Path("shards").mkdir()
    Path("shards/notes.txt").write_text("hello")
    return ["shards"]


@case("x: got both", "expected files of one kind")
def folder_with_mixed_shards():
    save("shards/a.npy", GOOD)
    table("shards/b.parquet", x=vectors())
    return ["shards"]


@case("got both x.npy and b.parquet")
def mixed_files():
    return [save("x.npy", GOOD), *table("b.parquet", x=vectors())]


@case("x.npy: is repeated")
def same_file_twice():
    save("x.npy", GOOD)
    return ["x.npy", "./x.npy"]


@case("a.csv: got suffix .csv (CSV), expected .npy, .parquet", "numpy as n")
def unknown_suffix():
    Path("a.csv").write_text("1,2\n")
    return ["a.csv"]


# Shapes


@case("x and y: got 10 and 9 rows, expected the same")
def other_number_of_rows():
    return [save("x.npy", GOOD), "--pair", save("y.npy", GOOD[:9])]


@case("x and y: got 4 and 3 dimensions, expected the same")
def other_dimensions():
    return [save("x.npy", GOOD), "--pair", save("y.npy", GOOD[:, :3])]


@case("b.npy: got 3 dimensions of float32, expected 4 of float32 as in a.npy")
def shard_of_other_dimensions():
    return [save("a.npy", GOOD), save("b.npy", GOOD[:, :3])]


@case("b.npy: got 4 dimensions of float16, expected 4 of float32 as in a.npy")
def shard_of_other_dtype():
    return [save("a.npy", GOOD), save("b.npy", GOOD.astype(np.float16))]


@case("a.npy: got 0 dimensions, shape (), expected 2")
def no_dimensions():
    return [save("a.npy", np.float32(3))]


@case("a.npy: got 1 dimensions, shape (40,), expected 2", "np.stack")
def one_dimension():
    return [save("a.npy", GOOD.ravel())]


@case("a.npy: got 3 dimensions, shape (10, 2, 2), expected 2", "reshape")
def three_dimensions():
    return [save("a.npy", GOOD.reshape(10, 2, 2))]


@case("a.npy: got shape (0, 4), expected at least 1 row")
def no_rows():
    return [save("a.npy", GOOD[:0])]


@case("a.npy: got shape (10, 0), expected at least 1 dimension")
def no_columns():
    return [save("a.npy", GOOD[:, :0])]


@case("x: got 1 rows, expected at least 2")
def one_row():
    return [save("a.npy", GOOD[:1])]


@case("a.parquet: got 0 rows")
def no_rows_in_parquet():
    return table(x=vectors([]))


# Numbers


@case("a.npy: got dtype int64 (integers), expected float16, float32 or int8")
def integers():
    return [save("a.npy", GOOD.astype(int))]


@case("a.npy: got dtype bool (booleans), expected float16, float32 or int8")
def booleans():
    return [save("a.npy", GOOD > 0)]


@case("a.npy: got dtype complex64 (complex numbers)")
def complex_numbers():
    return [save("a.npy", GOOD.astype(np.complex64))]


@case("a.npy: got Python objects", "never unpickled")
def objects():
    return [save("a.npy", GOOD.astype(object))]


@case("a.npy: got structured dtype")
def structured():
    return [save("a.npy", np.zeros(10, [("u", "f4"), ("v", "f4")]))]


@case("x: got 1 NaN or Inf values in 1 rows (a.npy row 3), expected finite numbers that float32")
def float64_that_overflows():
    large = GOOD.astype(np.float64)
    large[3, 1] = 1e300
    return [save("a.npy", large)]


@case("x: got 3 NaN or Inf values in 2 rows (a.npy row 2, a.npy row 5), expected finite numbers")
def not_finite():
    bad = GOOD.copy()
    bad[2, :2], bad[5, 3] = np.nan, np.inf
    return [save("a.npy", bad)]


@case("y: got 10 NaN or Inf values in 10 rows (y.npy row 0,", "y.npy row 4 and 5 more)")
def not_finite_in_many_rows():
    bad = GOOD.copy()
    bad[:, 0] = -np.inf
    return [save("x.npy", GOOD), "--pair", save("y.npy", bad)]


# NPY files


@case("a.npy: got an empty file (0 bytes), expected NPY")
def empty_npy():
    Path("a.npy").touch()
    return ["a.npy"]


@case("a.npy: got a pickle, which is never loaded", "'Other files' in docs/formats.md")
def pickle_named_npy():
    Path("a.npy").write_bytes(pickle.dumps(GOOD))
    return ["a.npy"]


@case("a.npy: got NPZ, expected NPY; name it .npz")
def npz_named_npy():
    np.savez("a.npz", GOOD)
    Path("a.npz").rename("a.npy")
    return ["a.npy"]


@case("a.npy: got", "the file is cut short: write or copy it again")
def truncated_npy():
    data = Path(save("a.npy", GOOD)).read_bytes()
    Path("a.npy").write_bytes(data[:-1])
    return ["a.npy"]


@case("a.npy: got a header that cannot be read as NPY")
def truncated_in_the_header():
    data = Path(save("a.npy", GOOD)).read_bytes()
    Path("a.npy").write_bytes(data[:40])
    return ["a.npy"]


@case("a.npy: got", "the file is too long: write or copy it again")
def too_long_npy():
    with open(save("a.npy", GOOD), "ab") as file:
        file.write(b"\0")
    return ["a.npy"]


@case("a.npy: got", "for the header's shape (1099511627776, 4) of float32; the file is cut short")
def header_that_claims_terabytes():
    return header("a.npy", (1 << 40, 4))


@case("a.npy: the header's shape (-10, -4) is negative")
def header_with_a_negative_shape():
    return header("a.npy", (-10, -4))


@case("a.npy: no .npy, .parquet", "file there")
def folder_named_npy():
    Path("a.npy").mkdir()
    return ["a.npy"]


# Parquet files


@case("a.parquet: got an empty file (0 bytes)")
def empty_parquet():
    Path("a.parquet").touch()
    return ["a.parquet"]


@case("a.parquet: cannot be read as Parquet", "damaged or of another kind")
def no_parquet():
    Path("a.parquet").write_bytes(b"hello, I am no Parquet file\n" * 9)
    return ["a.parquet"]


@case("a.parquet: cannot be read as Parquet")
def truncated_parquet():
    data = Path(table(x=vectors())[0]).read_bytes()
    Path("a.parquet").write_bytes(data[:-20])
    return ["a.parquet"]


@case("a.parquet: cannot be read as Parquet")
def corrupt_parquet():
    rows = vectors(np.random.default_rng(1).standard_normal((500, 8)))
    pq.write_table(pa.table({"x": rows}), "a.parquet", write_page_checksum=True)
    data = bytearray(Path("a.parquet").read_bytes())
    data[2000:2100] = bytes(100)
    Path("a.parquet").write_bytes(data)
    return ["a.parquet"]


@case("a.parquet row 3, column 'x': got null, expected a vector")
def null_row():
    return table(x=vectors([*GOOD[:3], None, *GOOD[4:]]))


@case("a.parquet row 3, column 'x': got null as element 1")
def null_element():
    return table(x=vectors([*GOOD[:3], [1, None, 3, 4], *GOOD[4:]]))


@case("a.parquet row 3, column 'x': got a list of 3 values, expected 4")
def ragged_lists():
    return table(x=vectors([*GOOD[:3], [1, 2, 3], *GOOD[4:]]))


@case("a.parquet: 'q' is none of the vector columns", "the columns are 'x' list<")
def missing_column():
    return [*table(x=vectors()), "--x-column", "q"]


@case("a.parquet: got 3 vector columns", "choose with x_column (--x-column)")
def ambiguous_columns():
    return table(u=vectors(), v=vectors(), w=vectors())


@case("a.parquet: got 0 vector columns", "the columns are 'n' int64")
def no_vector_column():
    return table(n=[1, 2])


@case(
    "a.parquet: 'n' is none of the vector columns (lists of float16, float32 or int8)", "'n' int64"
)
def column_of_another_type():
    return [*table(n=[1] * 10, x=vectors()), "--x-column", "n"]


@case("b.parquet: got 'x' of 3 dimensions of float32, expected 'x' of 4 dimensions of float32")
def parquet_shard_of_other_dimensions():
    return [*table("a.parquet", x=vectors()), *table("b.parquet", x=vectors(GOOD[:, :3]))]


@case("ids of x: got 1 duplicate ids, first 'a' at a.parquet row 0 and a.parquet row 9")
def duplicate_ids():
    return table(id=[*"abcdefghi", "a"], x=vectors())


@case("ids of x: got 1 null ids, first at a.parquet row 4")
def null_ids():
    return table(id=[*"abcd", None, *"fghij"], x=vectors())


@case("a.parquet: column 'key': there is no such column")
def missing_id_column():
    return [*table(x=vectors()), "--id-column", "key"]


@case("a.npy: got x_column, but arrays have no columns")
def column_of_an_array():
    return [save("a.npy", GOOD), "--x-column", "x"]


@pytest.mark.parametrize("name", CASES)
def test_refused(name, refused):
    make, parts = CASES[name]
    refused("random", *make(), "-b", 2, parts=parts)


@pytest.mark.parametrize("name", ["missing_path", "not_finite", "truncated_npy", "ragged_lists"])
def test_every_command_refuses(name, refused):
    make, parts = CASES[name]
    arguments = make()
    Path("plan.txt").write_text("0\n1\n")
    for command in (["gcbs", "-f"], ["inspect"], ["evaluate", "plan.txt", "-b", 2]):
        refused(*command, *arguments, parts=parts)


@pytest.mark.parametrize("command", ["gcbs", "inspect", "evaluate"])
def test_zero_rows_have_no_cosine(command, npy, pairs, refused, done):
    zeros = pairs[1].copy()
    zeros[[3, 9]] = 0
    np.save("y.npy", zeros)
    Path("p.txt").write_text("\n".join(map(str, range(len(zeros)))))
    arguments = [command, *(["p.txt"] * (command == "evaluate")), *npy]
    arguments += [] if command == "inspect" else ["-b", 8]
    said = "y: got 2 rows of zeros (y.npy row 3, y.npy row 9), for which cosine similarity is not"
    refused(*arguments, parts=[said])
    done(*arguments, "--similarity", "dot")


def test_two_sides_named_as_shards_of_one(refused, done):
    """They would make a plan of 20 rows, each its own positive, for 10 pairs."""
    for name in ("queries.npy", "codes.npy"):
        np.save(name, GOOD)
    parts = ["got 10 rows each, which", "queries.npy --pair codes.npy", "(--single)"]
    refused("random", "queries.npy", "codes.npy", "-b", 4, parts=parts)
    Path("both").mkdir()
    for name in ("queries.npy", "codes.npy"):
        os.link(name, f"both/{name}")
    parts[1] = "name both: both/codes.npy --pair both/queries.npy"
    refused("plan", "both", "-b", 4, parts=parts)
    refused("gcbs", "both/*.npy", "-b", 4, parts=parts)
    done("random", "queries.npy", "--pair", "codes.npy", "-b", 4, "-o", "pairs.npy")
    alone = done("random", "queries.npy", "-b", 4, "-q").stderr
    assert alone.startswith(
        "warning: queries.npy: one matrix of 10 x 4, so each row is its own positive; "
    )
    done("random", "queries.npy", "codes.npy", "--single", "-b", 4, "-o", "single.npy")
    assert [len(np.load(name)) for name in ("pairs.npy", "single.npy")] == [10, 20]


@pytest.mark.filterwarnings("error")
def test_products_that_overflow(refused, done):
    np.save("x.npy", 1e19 * GOOD)
    for planner in ("cluster", "scns", "osgd"):
        said = ["x: got 10 rows of length up to", "x.npy row 0", "scale the vectors down or use"]
        refused(planner, "x.npy", "--single", "-b", 4, "--similarity", "dot", parts=said)
    done("cluster", "x.npy", "-b", 4)
    refused(
        "evaluate",
        "plan.npy",
        "x.npy",
        "--single",
        "--similarity",
        "dot",
        parts=["x: got 10 rows of"],
    )


def test_an_output_that_cannot_show_a_name_spells_it_out(pairs):
    np.save("größe.npy", pairs[0])
    runner = CliRunner(charset="ascii")
    shown = runner.invoke(app, ["inspect", "größe.npy", "--single"])
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert r"x  48 rows  gr\xf6\xdfe.npy" in shown.stdout


WEIRD = {
    "newline": ("a\nb", r"a\nb"),
    "carriage return": ("a\rb", r"a\rb"),
    "line separator": ("a\u2028b", r"a\u2028b"),
    "escape code": ("a\x1b[31mb", r"a\x1b[31mb"),
    "markup": ("[red]", "[red]"),
    "emoji code": (":smile:", ":smile:"),
    "not unicode": ("a\udcffb", r"a\udcffb"),
    "long": ("long name " * 20, "long name " * 20),
    "not ascii": ("größe", "größe"),
}


@pytest.mark.parametrize("kind", WEIRD)
def test_weird_names_are_shown_as_they_are_or_spelled_out(kind, pairs, refused, done):
    name, shown = WEIRD[kind]
    path = Path(name + ".npy")
    refused("random", "none/" + name + ".npy", parts=[shown])
    np.save(path, pairs[0] * np.float32("nan"))
    refused("random", path, parts=[f"{shown}.npy row 0, "])
    np.save(path, pairs[0])
    assert f"  {shown}.npy\n" in done("inspect", path).stdout
    assert f" {shown}.parquet\n" in done("random", path, "-b", 8, "-o", name + ".parquet").stderr
    refused("random", path, "-b", 8, "-o", name + ".parquet", parts=[f"{shown}.parquet: exists"])
    np.save("p" + name + ".npy", np.arange(len(pairs[0])))
    measured = done("evaluate", "p" + name + ".npy", path, "-b", 8)
    assert measured.stdout.startswith(f"p{shown}.npy: 6 batches of 8")


@pytest.mark.parametrize("suffix", [".npy", ".parquet", ".npz", ".jsonl"])
@pytest.mark.parametrize("command", ["evaluate", "check", "report"])
def test_plan_and_data_in_the_other_order(command, suffix, npy, refused, done):
    done("random", *npy, "-b", 8, "-o", f"p{suffix}")
    more = ["--fail-under", "coverage.rows_seen=1"] if command == "check" else []
    said = f"p{suffix}: is a plan, expected embeddings; give plans first"
    refused(command, "x.npy", f"p{suffix}", *more, parts=[said])


@pytest.mark.parametrize(
    "line", ['{"x": [0.1, 0.2]}', "[0.1, 0.2]", '{"text": "a"}', '[{"text": 1}]', '\ufeff{"a": 1}']
)
def test_inspect_of_json_lines_that_are_no_plan(line, refused, tmp_path):
    Path("a.jsonl").write_text(f"{line}\n" * 3)
    refused("inspect", "a.jsonl", parts=["a.jsonl: got suffix .jsonl (JSON lines), expected .npy"])
