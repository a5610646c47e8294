"""Results that are kept: found again if nothing changed, and not mistaken for others."""

import json
from pathlib import Path

import numpy as np
import pytest

from batchplan import InputError, plan
from batchplan.comparison import read_settings
from batchplan.comparison.children import Cost
from batchplan.comparison.results import find_result, keep_result, origin
from batchplan.data import Embeddings

COST = Cost(1.5, {"write": 0.25}, 10**8, 0)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return Embeddings.from_arrays(rng.standard_normal((20, 4)).astype(np.float32))


@pytest.fixture
def kept(tmp_path, data):
    """A folder with the result of one setting; the setting and what it was made with."""
    (setting,) = read_settings(["random"], None, {"batch_size": 4})
    plan(data, planner="random", batch_size=4).save(tmp_path / "made.npz")
    folder, made_with = tmp_path / "kept", origin(setting, data, 0)
    assert find_result(folder, setting, made_with) is None
    keep_result(folder, setting, made_with, tmp_path / "made.npz", COST)
    return folder, setting, made_with


def test_what_is_kept_is_found(kept, tmp_path):
    folder, setting, made_with = kept
    found = find_result(folder, setting, made_with)
    assert (found.cost, found.kept) == (COST, True)
    assert (tmp_path / "kept/random.npz").read_bytes() == (tmp_path / "made.npz").read_bytes()
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"fingerprint": "b2:0"},
        {"planner": "shuffled"},
        {"versions": {"batchplan": "0.0.1"}},
        {"options": {"batch_size": 5}},
        {"files": {"reference": ["0"]}},
    ],
    ids=str,
)
def test_another_origin_is_not_found(kept, change):
    folder, setting, made_with = kept
    assert find_result(folder, setting, made_with | change) is None


@pytest.mark.parametrize(
    "broken",
    [
        {"cost": 3},
        {"cost": {"seconds": 1}},
        {"cost": {"seconds": "1", "stages": {}, "peak_memory_bytes": 1,
                  "peak_device_memory_bytes": 1}},
        {"digest": None},
        {"made_with": []},
    ],
    ids=str,
)  # fmt: skip
def test_a_broken_record_is_not_found(kept, tmp_path, broken):
    folder, setting, made_with = kept
    record = tmp_path / "kept/random.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | broken))
    assert find_result(folder, setting, made_with) is None


def test_a_broken_plan_is_not_found(kept, tmp_path):
    folder, setting, made_with = kept
    whole = tmp_path / "kept/random.npz"
    whole.write_bytes(whole.read_bytes()[:-1])
    assert find_result(folder, setting, made_with) is None
    whole.unlink()
    assert find_result(folder, setting, made_with) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "[" * 100_000, "\xff"])
def test_a_file_of_others_is_refused(kept, tmp_path, content):
    folder, setting, made_with = kept
    record = tmp_path / "kept/random.json"
    record.write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match=r"random\.json: is not a result of batchplan compare"):
        find_result(folder, setting, made_with)
    record.unlink()
    with pytest.raises(InputError, match=r"random\.npz: is not a result of batchplan compare"):
        find_result(folder, setting, made_with)


def test_files_and_columns_of_the_options_are_part_of_the_origin(data, tmp_path, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)

    def found(groups, content):
        pq.write_table(pa.table({"g": groups}), "labels.parquet")
        Path("other.npy").write_bytes(content)
        text = "[partition]\nreference = ['other.npy']\nrelative-margin = 0.1\n"
        text += "group-column = 'g'\nlabel-table = 'labels.parquet'"
        Path("s.toml").write_text(text)
        return origin(*read_settings(None, "s.toml", {}), data, 0)

    first = found([*range(20)], b"1")
    assert found([*range(20)], b"1") == first
    assert found([0, *range(19)], b"1") != first
    assert found([*range(20)], b"2") != first


def test_a_url_of_this_machine_is_its_path(data, tmp_path):
    np.save(tmp_path / "judge.npy", np.eye(20, dtype=np.float32))
    options = {"relative_margin": 0.1, "batch_size": 4}

    def files(name):
        (setting,) = read_settings(["partition"], None, {**options, "reference": [name]})
        return origin(setting, data, 0)["files"]

    found = files((tmp_path / "judge.npy").as_uri())
    assert found == files(str(tmp_path / "judge.npy"))
    np.save(tmp_path / "judge.npy", np.ones((20, 20), np.float32))
    assert found != files(str(tmp_path / "judge.npy"))
