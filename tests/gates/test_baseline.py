"""Baselines: what is stored, what is compared, what is refused."""

import json
from dataclasses import replace

import pytest

from batchplan.errors import InputError
from batchplan.gates import Baseline, comparable_settings
from batchplan.quality import EvaluationOptions


def settings(**options):
    options = EvaluationOptions(**options)
    return comparable_settings(options, batch_size=8, seed=0, group_column=None)


@pytest.fixture
def baseline():
    return Baseline(
        num_rows=48,
        fingerprint="b2:00",
        settings=settings(),
        evaluation={"gap": 0.1 + 0.2, "random_z": None, "hard_negative_recall": {"1": 1}},
    )


def test_what_is_written_is_read_back(baseline, tmp_path):
    path = tmp_path / "baseline.json"
    path.write_bytes(baseline.to_bytes())
    assert Baseline.load(path) == baseline
    assert Baseline.load(path).to_bytes() == baseline.to_bytes()


def test_it_is_comparable_with_itself(baseline):
    baseline.require_comparable(settings(), 48, "b.json")
    baseline.require_comparable(settings(temperature=0.05), 48, "b.json")


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"temperature": 0.1}, "temperature 0.05, got 0.1"),
        ({"similarity": "dot"}, "similarity cosine, got dot"),
        ({"random_trials": 3}, "random trials 20, got 3"),
        ({"relative_margin": 0.1}, "relative margin none, got 0.1"),
        ({"absolute_margin": 0.0}, "absolute margin none, got 0.0"),
        ({"max_score": 0.9}, "max score none, got 0.9"),
    ],
)
def test_other_settings_are_not_comparable(baseline, changed, part):
    with pytest.raises(InputError, match=f"b.json: measured with {part}"):
        baseline.require_comparable(settings(**changed), 48, "b.json")


@pytest.mark.parametrize(
    ("name", "value"),
    [("batch_size", 16), ("seed", 1), ("group_column", "a")],
)
def test_nor_are_other_batch_sizes_seeds_and_columns(baseline, name, value):
    with pytest.raises(InputError, match=f"{name.replace('_', ' ')} .*, got {value}"):
        baseline.require_comparable({**settings(), name: value}, 48, "b.json")


def test_another_number_of_rows_is_not_comparable(baseline):
    with pytest.raises(InputError, match=r"b.json: measured on 48 rows, got 49"):
        baseline.require_comparable(settings(), 49, "b.json")


def test_settings_that_a_baseline_lacks(baseline):
    older = replace(baseline, settings={})
    with pytest.raises(InputError, match="measured with batch size none, got 8"):
        older.require_comparable(settings(), 48, "b.json")


def broken(document, **changes):
    return json.dumps({**document, **changes}).encode()


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "Expecting value"),
        (b"\xff\xfe", "Expecting value"),
        (b"[" * 100_000, "more than 64 levels"),
        (b'{"a": ' + b"1" * 5000 + b"}", "digits"),
        (b"[]", "list"),
        (b'{"format_version": NaN}', "NaN is not a JSON number"),
        (b"{}", "format_version"),
        (b'{"format_version": 1}', "num_rows"),
        ({"format_version": 2}, "format version 2"),
        ({"format_version": True}, "format version: got True"),
        ({"num_rows": "48"}, "num rows: got '48', expected an integer"),
        ({"fingerprint": None}, "fingerprint: got None, expected text"),
        ({"settings": []}, "settings: got"),
        ({"evaluation": 3}, "evaluation: got 3"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_broken_files_are_refused(baseline, content, part, tmp_path):
    path = tmp_path / "b.json"
    if isinstance(content, dict):
        content = broken(json.loads(baseline.to_bytes()), **content)
    path.write_bytes(content)
    with pytest.raises(InputError, match=part) as caught:
        Baseline.load(path)
    assert str(caught.value).startswith(f"{path}: is not a baseline of this version (")
    assert len(str(caught.value)) < 400


def test_a_number_that_overflows_is_refused(baseline, tmp_path):
    path = tmp_path / "b.json"
    path.write_bytes(baseline.to_bytes().replace(b"0.30000000000000004", b"1e999"))
    with pytest.raises(InputError, match="1e999 is too large for a float"):
        Baseline.load(path)


def test_files_that_are_none_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        Baseline.load(tmp_path / "b.json")
    with pytest.raises(InputError, match="is not a regular file"):
        Baseline.load(tmp_path)
    with pytest.raises(InputError, match="is not a regular file"):
        Baseline.load("/dev/zero")
    (tmp_path / "b.json").write_bytes(b" " * ((16 << 20) + 1))
    with pytest.raises(InputError, match="more than 16 MiB"):
        Baseline.load(tmp_path / "b.json")


def test_keys_of_others_are_ignored(baseline, tmp_path):
    path = tmp_path / "b.json"
    path.write_bytes(broken(json.loads(baseline.to_bytes()), comment="of March"))
    assert Baseline.load(path) == baseline
