"""Reads each file of a folder as batchplan does and as pyarrow, NumPy and safetensors do.

    python -m tests.benchmarks.corpus FOLDER

A file counts as read if all its rows and ids are the same, column by column; or as refused, which
takes one line of at most 500 characters. All else is a failure: other values, a refusal of vectors
that the other libraries read, a file called damaged that they read, a traceback, or no end within
a minute. Ends with status 1 if there is one. Columns of labels are compared too.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_LIMIT = 60.0  # seconds a file
_MOST = 500  # characters of a message
_COLUMNS = 12  # of a file, compared one by one
_TABLES = {".parquet", ".parq", ".arrow", ".arrows", ".arrow_file", ".stream", ".ipc", ".feather"}
_KINDS = {".parq": ".parquet"} | dict.fromkeys([".arrows", ".arrow_file", ".stream"], ".arrow")
Found = dict[str, Any]


def digest(values: np.ndarray) -> str:
    """Shape and content of a matrix as float32, or of codes."""
    values = np.ascontiguousarray(values, np.int64 if values.ndim == 1 else np.float32)
    return f"{values.shape} {hashlib.sha256(values.tobytes()).hexdigest()[:16]}"


def text_digest(values: list[Any]) -> str:
    """Of ids."""
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16]


def codes(values: pa.ChunkedArray | pa.Array) -> str:
    """The digest of labels in order of first appearance; -1 for null."""
    seen: dict[Any, int] = {}
    labels = [-1 if v is None else seen.setdefault(v, len(seen)) for v in values.to_pylist()]
    return digest(np.array(labels, np.int64))


def fit(rows: np.ndarray) -> bool:
    """Whether a matrix can be one of embeddings, and no int8 are bits that sentence-transformers
    packed."""
    right = rows.ndim == 2 and len(rows) > 1 and rows.shape[1] > 0
    if rows.dtype == np.int8 and np.isin(rows, [*range(-128, -96), *range(96, 128)]).mean() > 1 / 6:
        return False
    with np.errstate(over="ignore"):
        return right and bool(np.isfinite(rows.astype(np.float32)).all())


def other_libraries(path: Path) -> Found:
    """What they read: digests of ``vectors`` and ``labels`` by column, and the ``ids``."""
    if path.suffix.lower() in _TABLES:
        return _of_table(_table(path))
    arrays = _arrays(path)
    right = ("float16", "float32", "float64", "int8")  # in any order of bytes
    found = {n: a for n, a in arrays.items() if a.dtype.name in right and fit(a)}
    return {"vectors": {name: digest(array) for name, array in found.items()}}


def _table(path: Path) -> pa.Table:
    if path.suffix.lower() in (".parquet", ".parq"):
        return pq.ParquetFile(path, page_checksum_verification=True).read()
    with pa.OSFile(str(path)) as file:
        if file.read(6) == b"ARROW1":
            return pa.ipc.open_file(file).read_all()
        file.seek(0)
        table = pa.ipc.open_stream(file).read_all()
        content = path.read_bytes()
        mark = b"\xff\xff\xff\xff\0\0\0\0"  # of the end; its half before Arrow 0.15
        if not content.endswith(mark if content.startswith(mark[:4]) else mark[4:]):
            raise ValueError("rows may be missing: the stream has no end mark")
        return table


def _of_table(table: pa.Table) -> Found:
    vectors, labels = {}, {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if table.column_names.count(name) > 1:
            continue
        kind = column.type
        while isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
            column = pa.chunked_array([chunk.storage for chunk in column.chunks], kind)
        values = getattr(kind, "value_type", None)
        if pa.types.is_dictionary(kind):
            kind = values
        is_list = str(kind).startswith(("list<", "large_list<", "fixed_size_list<"))
        if is_list and (pa.types.is_floating(values) or values == pa.int8()):
            lists = column.to_pylist()
            if lists and all(
                one and None not in one and len(one) == len(lists[0]) for one in lists
            ):
                rows = np.array(lists, np.float64)
                if fit(rows):
                    with np.errstate(over="ignore"):
                        vectors[name] = digest(rows.astype(np.float32))
        elif len(column) > 1 and str(kind) in _LABELS:
            labels[name] = codes(column)
    found = {"vectors": vectors, "labels": labels, "rows": len(table)}
    if "id" in labels and vectors:
        ids = table["id"].to_pylist()
        if None not in ids and not isinstance(ids[0], bool) and len({*ids}) == len(ids):
            found["ids"] = text_digest(ids)
    return found


_LABELS = {f"{sign}int{size}" for sign in ("", "u") for size in (8, 16, 32, 64)}
_LABELS |= {"string", "large_string", "bool", "string_view"}


def _arrays(path: Path) -> dict[str, np.ndarray]:
    suffix = path.suffix.lower()
    if suffix == ".npy":
        with path.open("rb") as file:
            array = np.load(file)
            if file.read(1):
                raise ValueError("it is longer than its header says")
        return {"": array}
    if suffix == ".npz":
        with np.load(path) as file:
            return {name: _or_none(file, name) for name in file.files}
    if suffix == ".fvecs":
        flat = np.fromfile(path, np.int32)
        rows = flat.reshape(-1, flat[0] + 1)
        assert (rows[:, 0] == flat[0]).all()
        return {"": rows[:, 1:].view(np.float32)}
    if suffix in (".fbin", ".f16bin", ".i8bin"):
        rows, dim = np.fromfile(path, np.uint32, 2)
        dtype = {".fbin": np.float32, ".f16bin": np.float16, ".i8bin": np.int8}[suffix]
        return {"": np.fromfile(path, dtype, offset=8).reshape(rows, dim)}
    import torch
    from safetensors.torch import load_file

    half = {torch.bfloat16: torch.float32}
    tensors = load_file(path)
    return {n: t.to(half.get(t.dtype, t.dtype)).numpy() for n, t in tensors.items() if t.ndim == 2}


def _or_none(file: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(file[name])
    except ValueError:  # Python objects
        return np.empty(0)


def batchplan_reads(path: Path, expected: Found) -> Found:
    """The same of batchplan; texts of errors in place of what it refuses."""
    import batchplan
    from batchplan.data import load_labels

    def matrix(**options: Any) -> list[str]:
        data = batchplan.load_embeddings(path, **options)
        sides = [data.x, data.y] if data.paired else [data.x]
        return [digest(side.rows(0, data.num_rows)) for side in sides]

    def labels(name: str) -> str:
        rows = np.ones((expected["rows"], 1), np.float32)
        return digest(load_labels(name, batchplan.load_embeddings(rows, single=True), path))

    def column(name: str) -> list[str]:
        return matrix(x_column=name, y_column=name, id_column="", negatives="none")

    def ids(name: str) -> str:
        return text_digest(
            batchplan.load_embeddings(
                path, x_column=name, y_column=name, negatives="none"
            ).ids.to_pylist()
        )

    names = [*expected.get("vectors", [])][:_COLUMNS]
    found: Found = {"file": _tried(matrix, id_column="")}
    found["vectors"] = {n: _tried(column, n) if n else found["file"] for n in names}
    found["ids"] = {"ids": _tried(ids, names[0])} if "ids" in expected else {}
    found["labels"] = {n: _tried(labels, n) for n in [*expected.get("labels", [])][:_COLUMNS]}
    return found


def _tried(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    from batchplan.errors import BatchplanError

    try:
        return function(*args, **options)
    except BatchplanError as error:
        return {"refused": str(error)}
    except Exception as error:
        return {"raised": f"{type(error).__name__}: {error}"}


def _serve(pipe: Any) -> None:
    """Answer questions about files until there are no more."""
    warnings.simplefilter("ignore")
    while True:
        path, expected = pipe.recv()
        if expected is None:
            try:
                pipe.send(other_libraries(path))
            except Exception as error:
                pipe.send({"unreadable": f"{type(error).__name__}: {error}"})
        else:
            pipe.send(batchplan_reads(path, expected))


class Reader:
    """A process that reads files, and is replaced when it dies or takes too long."""

    def __init__(self) -> None:
        self._process: Any = None

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def ask(self, path: Path, expected: Found | None) -> Found:
        if self._process is None:
            self._pipe, other = multiprocessing.Pipe()
            context = multiprocessing.get_context("spawn")
            self._process = context.Process(target=_serve, args=(other,), daemon=True)
            self._process.start()
            other.close()
        self._pipe.send((path, expected))
        try:
            if self._pipe.poll(_LIMIT):
                answer: Found = self._pipe.recv()
                return answer
            state = f"no end within {_LIMIT:.0f} s"
        except EOFError:
            state = "the process died"
        self.close()
        return {"unreadable": state, "raised": state}


def faults(expected: Found, got: Found) -> list[str]:
    """Say what is wrong with the answers of batchplan."""
    found = [got["raised"]] if "raised" in got else []
    answers = {"file": got.get("file")}
    answers |= got.get("vectors", {}) | got.get("labels", {}) | got.get("ids", {})
    for name, answer in answers.items():
        if not isinstance(answer, dict):
            continue
        text = answer.get("raised") or answer["refused"]
        if "raised" in answer or "\n" in text or len(text) > _MOST:
            found.append(f"{name}: {len(text)} characters: {text:.700}")
        elif "damaged" in text and "unreadable" not in expected:
            found.append(f"called damaged: {text}")
    for kind in ("vectors", "labels"):
        for name, answer in got.get(kind, {}).items():
            right = expected[kind][name]
            if answer not in (right, [right]):
                found.append(f"{kind} {name!r:.60}: got {answer!s:.500}, expected {right}")
    if got.get("ids") and got["ids"]["ids"] != expected["ids"]:
        found.append(f"got other ids: {got['ids']}")
    whole, known = got.get("file"), [*expected.get("vectors", {}).values()]
    if isinstance(whole, list) and not {*whole} <= {*known}:
        found.append(f"read as {whole}, expected some of {known}")
    return found


def kind_of(path: Path) -> str:
    suffix = path.suffix.lower()
    return _KINDS.get(suffix, suffix)


def run(folder: Path) -> tuple[Counter[str], list[str]]:
    """Return the counts by kind, and what is wrong."""
    from batchplan.files.inputs import INPUT_FORMATS

    counts: Counter[str] = Counter()
    wrong: list[str] = []
    reader = Reader()
    log = sys.stderr
    for path in sorted(folder.rglob("*")):
        kind = kind_of(path)
        if not path.is_file() or kind not in INPUT_FORMATS:
            continue
        counts["files"] += 1
        link = path
        if kind != path.suffix.lower():  # batchplan goes by the suffix
            link = path.with_name(path.name + kind)
            link.exists() or link.symlink_to(path.name)
        expected = reader.ask(path, None)
        got = reader.ask(link, expected)
        if link != path:
            link.unlink()
        found = faults(expected, got)
        wrong += [f"{path}: {one}" for one in found]
        refused = isinstance(got.get("file"), dict)
        state = "wrong" if found else "refused" if refused else "read"
        counts[f"{kind} {state}"] += 1
        counts["columns of vectors"] += len(got.get("vectors", {}))
        counts["columns of ids"] += len(got.get("ids", {}))
        counts["columns of labels"] += len(got.get("labels", {}))
        counts["unreadable for the others"] += "unreadable" in expected
        print(json.dumps({"file": str(path), "got": got, "expected": expected}), file=log)
    reader.close()
    return counts, wrong


def main() -> None:
    counts, wrong = run(Path(sys.argv[1]))
    for line in wrong:
        print(line)
    for name, count in sorted(counts.items()):
        print(f"{count:6}  {name}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
