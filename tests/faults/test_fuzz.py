"""Damaged files of every kind that is read: refused in one line, or read as what they hold.

Real files, made by the package, have bits flipped, spans cut, repeated, swapped or made up, and
numbers replaced by huge ones. Whoever loads them gets what they hold, an InputError or a
ResourceError: never another exception, never a wait, and never more memory than the size of the
file warrants. FUZZ_EXAMPLES=5000 looks longer.
"""

import faulthandler
import json
import os
import re
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from batchplan.comparison.settings import read_settings
from batchplan.consumption import Trace, verify
from batchplan.data import load_embeddings, load_labels
from batchplan.errors import InputError, ResourceError
from batchplan.gates import Baseline, comparable_settings
from batchplan.plans import Batching, Plan, is_plan
from batchplan.plans.negatives import Negatives, is_negatives
from batchplan.quality import EvaluationOptions, evaluate
from batchplan.text import one_line
from batchplan.training import Recorder

ROWS, DIM = 24, 3
PATIENCE = 120  # seconds until a load that hangs ends the tests, with a traceback
SPARE, PER_BYTE = 48 << 20, 64  # bytes of memory: whatever the file, and for each of its bytes
HUGE = [b"0", b"-1", b"65537", b"9" * 10, b"9" * 19, b"1" + b"0" * 30, b"1e400", b"9" * 5000]

fuzzed = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "40")),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
# The last ones are large numbers where a format has them in one to ten bytes, as Parquet does.
BYTES = st.binary(min_size=1, max_size=16) | st.sampled_from(
    [b"\xff" * 4 + b"\x0f", b"\xfe\xff\xff\xff\x0f", b"\x80" * 9 + b"\x01", b"\xff\xff\xff\x7f"]
)
PLACES, LENGTHS = st.floats(0, 1, exclude_max=True), st.integers(1, 64)
DAMAGES = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), PLACES, st.integers(0, 7)),
        st.tuples(st.just("cut off"), PLACES, st.none()),
        st.tuples(st.just("cut out"), PLACES, LENGTHS),
        st.tuples(st.just("insert"), PLACES, BYTES),
        st.tuples(st.just("replace"), PLACES, BYTES),
        st.tuples(st.just("repeat"), PLACES, st.tuples(LENGTHS, st.sampled_from([1, 2, 1000]))),
        st.tuples(st.just("number"), PLACES, st.sampled_from(HUGE)),
    ),
    min_size=1,
    max_size=4,
)


def damaged(content: bytes, damages) -> bytes:
    for kind, place, how in damages:
        at = int(place * len(content))
        before, after = content[:at], content[at:]
        if kind == "flip":
            content = before + bytes([after[0] ^ (1 << how)]) + after[1:] if after else before
        elif kind == "cut off":
            content = before
        elif kind == "cut out":
            content = before + after[how:]
        elif kind == "insert":
            content = before + how + after
        elif kind == "replace":
            content = before + how + after[len(how) :]
        elif kind == "repeat":
            length, times = how
            content = before + after[:length] * times + after
        elif numbers := list(re.finditer(rb"\d+", content)):
            found = numbers[int(place * len(numbers))]
            content = content[: found.start()] + how + content[found.end() :]
    return content


def resident(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(rf"{name}:\s+(\d+)", status)[1])


@pytest.fixture(scope="module", autouse=True)
def terminal(pytestconfig):
    """Where the traceback of a load that hangs goes: the standard error that pytest hides."""
    global terminal_descriptor
    terminal_descriptor = pytestconfig.stash.get(fault_handler_stderr_fd_key, 2)


@contextmanager
def watched(size: int):
    """End the tests if the body hangs; require that it needed memory in proportion to ``size``."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    except OSError:
        pytest.skip("this system does not tell the peak of memory afresh")
    before = resident("VmRSS")
    faulthandler.dump_traceback_later(PATIENCE, exit=True, file=terminal_descriptor)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
    assert resident("VmHWM") - before < SPARE + PER_BYTE * size


def loaded(load, path: Path, content: bytes):
    """What the load gives of the damaged content, None if it refuses it in one line."""
    path.write_bytes(content)
    with watched(len(content)):
        try:
            return load()
        except (InputError, ResourceError) as error:
            said = str(error)
    assert str(path.with_suffix("")) in said, "the message names the file"
    assert one_line(said).isprintable()
    return None


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with a file of each kind, all as the package writes them."""
    folder = tmp_path_factory.mktemp("whole")
    rng = np.random.default_rng(7)
    x, y = rng.standard_normal((2, ROWS, DIM)).astype(np.float32)
    np.save(folder / "x.npy", x)
    table = {"x": list(x), "y": list(y), "id": [f"r{i}" for i in range(ROWS)]}
    for name, options in (
        ("pairs", {"compression": "zstd"}),
        ("plain", {"compression": "none", "use_dictionary": False, "data_page_version": "2.0"}),
    ):
        pq.write_table(
            pa.table(table), folder / f"{name}.parquet", write_page_checksum=True, **options
        )
    kinds = {"kind": [f"k{i % 5}" for i in range(ROWS)]}
    pq.write_table(pa.table(kinds), folder / "kinds.parquet", write_page_checksum=True)
    data = load_embeddings(folder / "pairs.parquet")
    plan = Plan.cut(
        rng.permutation(ROWS),
        Batching(4, batch_order="shuffled"),
        num_rows=ROWS,
        generator=rng,
        planner="gcbs",
        options={"a": [1.5]},
        fingerprint=data.fingerprint,
    )
    for suffix in ("npy", "parquet", "npz", "jsonl", "txt"):
        plan.save(folder / f"plan.{suffix}")
    others = (np.arange(ROWS)[:, None] + np.arange(1, 4)) % ROWS
    Negatives(np.arange(ROWS), others, plan.metadata).save(folder / "negatives.parquet")
    options = EvaluationOptions(random_trials=2)
    how = comparable_settings(options, batch_size=4, seed=0, group_column=None)
    Path(folder / "baseline.json").write_bytes(
        Baseline(
            num_rows=ROWS,
            fingerprint=data.fingerprint,
            settings=how,
            evaluation=evaluate(plan, data, random_trials=2).to_dict(),
        ).to_bytes()
    )
    recorder = Recorder(folder)
    for epoch, step in np.ndindex(3, len(plan)):
        recorder.take({"batchplan_row": plan[step]}, epoch, step, plan.digest)
    Path(folder / "settings.toml").write_text(
        '[random]\nbatch-size = 8\n["hard one"]\nplanner = "partition"\nneighbors = 4\n'
        'temperature = 0.07\nrefine = false\nexclude = ["a.npy"]\n'
    )
    return folder


@pytest.fixture
def copied(whole, tmp_path):
    """Copy files of `whole`, as often as wanted; the path of the first."""

    def copied(*names):
        for name in names:
            (tmp_path / name).write_bytes((whole / name).read_bytes())
        return tmp_path / names[0]

    return copied


@pytest.mark.parametrize("name", ["x.npy", "pairs.parquet", "plain.parquet"])
@fuzzed
@given(DAMAGES)
@example([("insert", 0.41289706015432165, b"\xfe\xff\xff\xff\x0f")])  # a page of 2 GB in plain
def test_embeddings(name, copied, damages):
    path = copied(name)
    found = loaded(partial(load_embeddings, path), path, damaged(path.read_bytes(), damages))
    assert found is None or (found.num_rows >= 2 and np.isfinite(found.x.rows(0, 1 << 20)).all())


@pytest.mark.parametrize("name", ["pairs.parquet", "plain.parquet"])
@fuzzed
@given(st.data())
def test_a_page_of_embeddings_is_never_read_as_another(name, copied, data):
    """The checksum of a page covers it."""
    path = copied(name)
    fingerprint = load_embeddings(path).fingerprint
    group = pq.read_metadata(path).row_group(0)
    parts = [group.column(i) for i in range(group.num_columns)]
    start = min(part.dictionary_page_offset or part.data_page_offset for part in parts)
    stop = start + sum(part.total_compressed_size for part in parts)
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(start, stop - 1))] ^= data.draw(st.integers(1, 255))
    found = loaded(partial(load_embeddings, path, id_column=""), path, bytes(content))
    assert found is None or found.fingerprint == fingerprint


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        *((f"plan.{suffix}",) * 2 for suffix in ("npy", "parquet", "npz", "jsonl", "txt")),
        ("plan.npy", "plan.npy.json"),
        ("plan.jsonl", "plan.jsonl.json"),
    ],
)
@fuzzed
@given(DAMAGES)
def test_plans(name, changed, copied, damages):
    sidecars = [f"{name}.json"] if name.endswith(("npy", "jsonl", "txt")) else []
    path = copied(name, *sidecars)
    before = Plan.load(path)

    def load():
        is_plan(path)
        return Plan.load(path)

    content = damaged((path.parent / changed).read_bytes(), damages)
    found = loaded(load, path.parent / changed, content)
    if found is not None and found.metadata.fingerprint:  # the metadata were there
        assert np.array_equal(found.rows, before.rows)
        assert np.array_equal(found.batch_offsets, before.batch_offsets)


@pytest.mark.parametrize("name", ["plan.npy", "plan.jsonl", "plan.txt", "plan.parquet"])
@fuzzed
@given(DAMAGES)
def test_plans_without_metadata(name, copied, damages):
    path = copied(name)
    if name == "plan.parquet":
        pq.write_table(pq.read_table(path).replace_schema_metadata(), path)
    content = damaged(path.read_bytes(), damages)
    size = None if name.endswith(("jsonl", "parquet")) else 4
    found = loaded(partial(Plan.load, path, batch_size=size), path, content)
    assert found is None or found.batch_offsets[-1] == len(found.rows)


@fuzzed
@given(DAMAGES)
def test_negatives(copied, damages):
    path = copied("negatives.parquet")
    before = Negatives.load(path)

    def load():
        is_negatives(path)
        return Negatives.load(path)

    found = loaded(load, path, damaged(path.read_bytes(), damages))
    assert found is None or np.array_equal(found.negatives, before.negatives)


@fuzzed
@given(DAMAGES)
def test_labels(whole, copied, damages):
    path = copied("kinds.parquet")
    data = load_embeddings(whole / "pairs.parquet")
    content = damaged(path.read_bytes(), damages)
    found = loaded(partial(load_labels, "kind", data, path), path, content)
    assert found is None or len(found) == ROWS


def test_a_small_table_of_many_labels(whole, copied):
    path = copied("kinds.parquet")
    pq.write_table(pa.table({"kind": np.zeros(10_000_000, np.int64)}), path)
    data = load_embeddings(whole / "pairs.parquet")
    assert loaded(partial(load_labels, "kind", data, path), path, path.read_bytes()) is None


@fuzzed
@given(DAMAGES)
def test_baselines(copied, damages):
    path = copied("baseline.json")
    found = loaded(partial(Baseline.load, path), path, damaged(path.read_bytes(), damages))
    assert found is None or Baseline.load(path).to_bytes()


@fuzzed
@given(DAMAGES)
def test_settings_of_a_comparison(copied, damages):
    path = copied("settings.toml")
    content = damaged(path.read_bytes(), damages)
    found = loaded(partial(read_settings, None, str(path), {}), path, content)
    assert found is None or {one.planner for one in found}


@fuzzed
@given(DAMAGES)
@example([("number", 0.5, b"268435455"), ("cut off", 0.6, None)])
def test_traces_of_a_training(whole, tmp_path, damages):
    plan, path = Plan.load(whole / "plan.npy"), tmp_path / "trace.0.jsonl"
    content = damaged((whole / path.name).read_bytes(), damages)
    found = loaded(lambda: verify({0: plan}, Trace(tmp_path)), path, content)
    assert found is None or json.dumps(found.to_dict(), allow_nan=False)
