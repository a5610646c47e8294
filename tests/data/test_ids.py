"""Ids of the rows, wherever those of two files meet: compared by value, and never skipped."""

import uuid
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan import InputError
from batchplan.data import Candidates, Embeddings, load_embeddings, load_labels
from batchplan.data.ids import ids_digest
from batchplan.data.texts import load_texts
from tests.observing import Observer

from .writers import column

N = 20
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((2, N, 4)).astype(np.float32)
NUMBERS = list(range(10, 10 + N))
SWAPPED = [NUMBERS[1], NUMBERS[0], *NUMBERS[2:]]
DIGITS = {
    "string": pa.string(), "large_string": pa.large_string(), "binary": pa.binary(),
    "large_binary": pa.large_binary(), "fixed_size_binary": pa.binary(2),
}  # fmt: skip
if int(pa.__version__.partition(".")[0]) >= 18:  # older ones cast no views
    DIGITS["string_view"] = pa.string_view()


def kinds(numbers):
    """The same ids in all types, by name."""
    found = {str(kind): pa.array(numbers, kind) for kind in (pa.int64(), pa.int16(), pa.uint32())}
    found |= {str(kind): pa.array(numbers, kind) for kind in (pa.uint64(), pa.float32())}
    found["double"] = pa.array(numbers, pa.float64())
    for places in (0, 2):
        found[f"decimal {places}"] = pa.array(
            [Decimal(number).scaleb(0) for number in numbers], pa.decimal128(20, places)
        )
    digits = [str(number) for number in numbers]
    for name, kind in DIGITS.items():
        values = [one.encode() for one in digits] if "binary" in name else digits
        found[name] = pa.array(values, kind)
    found["dictionary"] = pa.array(digits).dictionary_encode()
    return found


def write(path, values=X, **columns):
    """A file of vectors and other columns; Arrow, which has all types."""
    table = pa.table({"v": column(values), **columns})
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    return path


def refusal(call, *arguments, **options):
    with pytest.raises(InputError) as error:
        call(*arguments, **options)
    assert len(str(error.value)) <= 500
    return str(error.value)


@pytest.mark.parametrize("name", ["id", "key"])
def test_all_types_are_compared_by_value(tmp_path, name):
    named = {} if name == "id" else {"id_column": name}
    same, swapped = kinds(NUMBERS), kinds(SWAPPED)
    for side in ("int64", "string"):
        x = write(tmp_path / "x.arrow", **{name: same[side]})
        for kind, values in same.items():
            y = write(tmp_path / "y.arrow", Y, **{name: values})
            ids = load_embeddings(x, y, **named).ids
            assert ids.to_pylist() == same[side].to_pylist()
            assert load_embeddings(y, x, **named).ids.to_pylist() in (
                NUMBERS, [str(one) for one in NUMBERS], [str(one).encode() for one in NUMBERS]
            )  # fmt: skip
            write(y, Y, **{name: swapped[kind]})
            said = refusal(load_embeddings, x, y, **named)
            assert f"y: got the ids of x in another order, first at {y} row 0 (" in said
            assert load_embeddings(x, y, id_column="").ids is None


def test_numbers_are_compared_exactly(tmp_path):
    large = [2**63 + number for number in range(N)]
    x = write(tmp_path / "x.arrow", id=pa.array(large, pa.uint64()))
    same = (
        pa.array(large, pa.uint64()), pa.array(map(str, large)),
        pa.array(list(map(Decimal, large)), pa.decimal128(38, 0)),
    )  # fmt: skip
    for values in same:
        y = write(tmp_path / "y.arrow", Y, id=values)
        assert load_embeddings(x, y).ids.to_pylist() == large
        assert load_embeddings(y, x).ids.to_pylist() in (large, list(map(str, large)))
    one = [*large[:-1], 2**64 - 1]
    assert "18446744073709551615" in refusal(
        load_embeddings, x, write(y, Y, id=pa.array(one, pa.uint64()))
    )
    rounded = pa.array([float(2**53 + 2 * number) for number in range(N)])
    numbers = pa.array([2**53 + 1, *(2**53 + 2 * number for number in range(1, N))])
    write(x, id=numbers)
    assert "(9007199254740992, expected 9007199254740993)" in refusal(
        load_embeddings, x, write(y, Y, id=rounded)
    )
    write(x, id=pa.array(range(N)))
    said = refusal(
        load_embeddings, x, write(y, Y, id=[*(f"{row:03}" for row in range(N - 1)), "19"])
    )
    assert "y: got other ids than x, first at" in said  # "007" is not 7


def test_floats_that_are_no_ids(tmp_path):
    path = tmp_path / "x.arrow"
    for wrong, shown in (
        (0.5, "0.5"),
        (np.nan, "nan"),
        (np.inf, "inf"),
        (2.0**64, "1.8"),
        (-1e300, "-1e"),
    ):
        write(path, id=[*map(float, range(N - 1)), wrong])
        said = refusal(load_embeddings, path, single=True)
        assert f"ids of x: got double such as {shown}" in said
        assert f"at {path} row {N - 1}" in said
        assert load_embeddings(path, single=True, id_column="").ids is None


def test_nearly_the_same_ids(tmp_path):
    """A row was dropped on each side, so all between them are paired wrongly."""

    def sides(x_ids, y_ids, kind=None):
        return (
            write(tmp_path / "x.parquet", id=pa.array(x_ids, kind)),
            write(tmp_path / "y.parquet", Y, id=pa.array(y_ids, kind)),
        )

    rows = range(N + 1)
    x, y = sides([r for r in rows if r != 5], [r for r in rows if r != 12])
    assert refusal(load_embeddings, x, y) == (
        f"y: got other ids than x, first at {y} row 5 (5, expected 6); 1 (12) only in x, 1 (5) "
        "only in y; give the same rows in the same order, or compare no ids with id_column='' "
        "(--id-column '')"
    )
    x, y = sides(range(N), range(N - 1, 2 * N - 1))
    assert "19 (0, 1, 2, ...) only in x, 19 (20, 21, 22, ...) only in y" in refusal(
        load_embeddings, x, y
    )
    x, y = sides(range(N), [0] * N)  # 0 is an id of both
    assert "row 1 (0, expected 1); 19 (1, 2, 3, ...) only in x, 0 only in y" in refusal(
        load_embeddings, x, y
    )
    x, y = sides(range(N), [None, *range(1, N)])
    assert "row 0 (None, expected 0); 1 (0) only in x, 1 (None) only in y" in refusal(
        load_embeddings, x, y
    )
    x, y = sides(
        [f"\x1b[31m{row:0400}" for row in range(N)],
        [str(row) for row in range(N - 1)] + [f"\x1b[31m{5:0400}"],
        pa.string(),
    )
    assert "\x1b" not in refusal(load_embeddings, x, y)


def test_no_common_ids(tmp_path):
    x = write(tmp_path / "x.parquet", id=[f"q{row}" for row in range(N)])
    for own in ([f"d{row}" for row in range(N)], ["d"] * N, range(N)):
        y = write(tmp_path / "y.parquet", Y, id=pa.array(own))
        watch = Observer()
        assert load_embeddings(x, y, observer=watch).ids[1].as_py() == "q1"
        assert watch.notes == ["note: no id of y is one of x; rows pair by position"]


def test_ids_of_one_side(tmp_path):
    x, y = write(tmp_path / "x.parquet"), write(tmp_path / "y.parquet", Y, key=range(7, 7 + N))
    assert load_embeddings(x, y).ids is None
    assert load_embeddings(x, y, id_column="key").ids[0].as_py() == 7
    assert f"id column 'none': neither {x} nor {y}" in refusal(
        load_embeddings, x, y, id_column="none"
    )
    np.save(tmp_path / "x.npy", X)
    assert load_embeddings(tmp_path / "x.npy", y, id_column="key").ids[0].as_py() == 7


def test_shards_of_which_some_have_ids(tmp_path):
    """In whatever order: the ids that are there would be compared with nothing."""
    one, other = write(tmp_path / "0.parquet"), write(tmp_path / "1.parquet", Y, id=NUMBERS)
    for paths in ([one, other], [other, one]):
        assert f"{paths[1]}: " in refusal(load_embeddings, paths, single=True)
        assert load_embeddings(paths, single=True, id_column="").ids is None


def test_types_that_cannot_be_compared(tmp_path):
    days = pa.array(np.arange(N).astype("datetime64[D]"))
    x, y = tmp_path / "x.parquet", tmp_path / "y.parquet"
    for one, other in ((days, pa.array(NUMBERS)), (pa.array(NUMBERS), days), (days, days)):
        write(x, id=one)
        write(y, Y, id=other)
        said = refusal(load_embeddings, x, y)
        assert f"column 'id': got {one.type} in {x} and {other.type} in {y}, which cannot" in said
        assert load_embeddings(x, y, id_column="").ids is None
    write(y, Y)
    assert load_embeddings(write(x, id=days), y).ids is None  # they meet no others


def test_tables_of_labels_and_texts(tmp_path):
    data = load_embeddings(
        write(tmp_path / "x.parquet", id=pa.array(NUMBERS, pa.int32())), single=True
    )
    table = tmp_path / "table.parquet"
    text = [f"text {row}" for row in range(N)]

    def read(ids, embeddings=data):
        pq.write_table(pa.table({"id": ids, "label": text}), table)
        labels = load_labels("label", embeddings, table)
        return labels, load_texts("label", embeddings, np.arange(N), table)

    for ids in (kinds(NUMBERS)["string"], pa.array([f"d{row}" for row in range(N)])):
        labels, texts = read(ids)
        assert labels.tolist() == list(range(N))
        assert texts[N - 1] == text[-1]
    days = pa.array(np.arange(N).astype("datetime64[D]"))
    for ids, message in (
        (kinds(SWAPPED)["string"], "got the ids of the data in another order, first at row 0"),
        (pa.array([*NUMBERS[1:], 99]), "row 0 (11, expected 10); 1 (10) only in the data, 1 (99)"),
        (days, f"got int32 in {tmp_path}/x.parquet and date32[day] in {table}"),
    ):
        assert message in refusal(read, ids)
        assert message in refusal(load_texts, "label", data, np.arange(N), table)
        without = load_embeddings(tmp_path / "x.parquet", single=True, id_column="")
        assert read(ids, without)[0].tolist() == list(range(N))
    assert "another order" in refusal(
        read, pa.array(SWAPPED), Embeddings.from_arrays(X, ids=NUMBERS)
    )


def test_a_table_without_the_named_column_has_the_usual_one(tmp_path):
    x, table = write(tmp_path / "x.parquet", doc=NUMBERS), tmp_path / "table.parquet"
    data = load_embeddings(x, single=True, id_column="doc")

    def read(**columns):
        pq.write_table(pa.table({"label": NUMBERS, **columns}), table)
        return load_labels("label", data, table).tolist()

    for columns in ({}, {"id": kinds(NUMBERS)["string"]}, {"id": SWAPPED, "doc": NUMBERS}):
        assert read(**columns) == list(range(N))
    assert "table.parquet: got the ids of the data in another order" in refusal(read, id=SWAPPED)
    assert "another order" in refusal(read, id=NUMBERS, doc=SWAPPED)
    with pytest.warns(UserWarning, match=r"no id of .*table.parquet is one of the data"):
        read(id=[f"d{row}" for row in range(N)])


def test_files_of_mined_negatives(tmp_path):
    x = write(tmp_path / "x.parquet", id=NUMBERS)
    y = write(tmp_path / "y.parquet", Y)
    mined = write(tmp_path / "mined.parquet", Y[::-1].copy(), id=kinds(NUMBERS)["string"])
    assert load_embeddings(x, y, negatives=mined).ids.to_pylist() == NUMBERS
    for columns, message in (
        ({"id": SWAPPED}, "negatives: got the ids of x in another order"),
        ({"id": [*NUMBERS[1:], 99]}, "negatives: got other ids than x"),
        ({"id": [True] * N}, f"got int64 in {x} and bool in {mined}"),
    ):
        write(mined, **columns)
        assert message in refusal(load_embeddings, x, y, negatives=mined)
    assert load_embeddings(x, y, negatives=mined, id_column="").ids is None
    write(mined, id=[f"d{row}" for row in range(N)])
    watch = Observer()
    load_embeddings(x, y, negatives=mined, observer=watch)
    assert watch.notes == ["note: no id of negatives is one of x; rows pair by position"]


def test_ids_of_candidates_by_value(tmp_path):
    path = tmp_path / "lists.arrow"
    lists = [[(row + 1) % N, (row + 2) % N] for row in range(N)]
    more = {"scores": [[0.5, 0.4]] * N, "positive": [0.9] * N}
    same = kinds(NUMBERS)
    for listed in ("int16", "double", "string"):
        values = pa.array([[same[listed][at].as_py() for at in row] for row in lists])
        for known in same.values():
            write(path, ids=values, id=known, **more)
            assert Candidates.load(path).indices.reshape(N, 2).tolist() == lists
    write(path, ids=pa.array([["007", "8"]] * N), id=pa.array(range(N)), **more)
    assert "row 0: got the candidate '007', which is not in" in refusal(Candidates.load, path)


def test_ids_are_shown_whole(tmp_path):
    """Those of UUIDs as bytes, and texts of 52 characters."""
    keys = [uuid.uuid5(uuid.NAMESPACE_URL, str(row)) for row in range(2 * N)]
    for all_ids in ([key.bytes for key in keys], [f"{row:052}" for row in range(2 * N)]):
        own, other = all_ids[:N], [*all_ids[: N - 1], all_ids[N]]
        x, y = write(tmp_path / "x.parquet", id=own), write(tmp_path / "y.parquet", Y, id=other)
        message = refusal(load_embeddings, x, y)
        assert repr(own[-1]) in message
        assert len(message) <= 500


def test_a_table_without_common_ids_is_noted(tmp_path):
    x = write(tmp_path / "x.parquet", id=[f"q{row}" for row in range(N)])
    data = load_embeddings(x, single=True)
    table = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": [f"d{row}" for row in range(N)], "s": ["a"] * N}), table)
    for read in (
        lambda: load_labels("s", data, table),
        lambda: load_texts("s", data, np.arange(N), table),
    ):
        with pytest.warns(UserWarning, match=f"no id of {table} is one of the data; rows pair by"):
            read()


def test_digests_of_ids_are_by_value_and_order():
    found = [Embeddings.from_arrays(X, Y, ids=ids).ids for ids in kinds(NUMBERS).values()]
    assert {ids_digest(ids) for ids in found} == {ids_digest(pa.array(NUMBERS))}
    assert ids_digest(pa.array(NUMBERS)) == ids_digest(pa.array([0, *NUMBERS]).slice(1))
    others = [SWAPPED, NUMBERS[1:], ["1", "23"], ["12", "3"], ["1", "2", "3"]]
    digests = {ids_digest(pa.array(ids)) for ids in [NUMBERS, *others]}
    assert len(digests) == 1 + len(others)
