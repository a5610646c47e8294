"""Plan metadata: plain JSON values, checked both ways."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from batchplan import InputError
from batchplan.plans import Batching, Plan, PlanMetadata


def metadata(**changes):
    return PlanMetadata(**{"batch_size": 2, "num_rows": 4, "partitions_rows": True} | changes)


def test_survives_json():
    ours = metadata(options={"k": np.int64(3), "path": Path("a"), "b": (1, 2)}, seed=np.int64(7))
    theirs = PlanMetadata.from_dict(json.loads(json.dumps(ours.to_dict())))
    assert theirs == ours
    assert ours.options == {"b": [1, 2], "k": 3, "path": "a"}
    assert ours.seed == 7


def test_numbers_that_json_lacks_become_none():
    assert metadata(metrics={"loss": float("nan"), "most": np.float32("inf")}).metrics == {
        "loss": None,
        "most": None,
    }


def test_an_option_that_json_cannot_hold():
    with pytest.raises(InputError, match=r"options\.f: got a function"):
        metadata(options={"f": metadata})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("planner", None),
        ("options", []),
        ("seed", -1),
        ("seed", 1.5),
        ("seed", True),
        ("batch_size", 1),
        ("batch_size", "64"),
        ("batch_size", 5),
        ("seed", -(10**400)),
        ("num_rows", 10**400),
        ("num_rows", None),
        ("num_rows", 2**63),
        ("tail", "wrap"),
        ("tail", []),
        ("batch_order", "random"),
        ("scope", ""),
        ("world_size", 0),
        ("partitions_rows", 1),
        ("fingerprint", 5),
        ("versions", {"numpy": 2}),
        ("metrics", 3),
        ("format_version", 0),
        ("format_version", "1"),
        ("format_version", True),
    ],
)
def test_wrong_values_name_the_field(name, value):
    label = name.replace("_", " ")
    with pytest.raises(InputError, match=label):
        PlanMetadata.from_dict(metadata().to_dict() | {name: value})
    with pytest.raises(InputError, match=label):
        dataclasses.replace(metadata(), **{name: value})


@pytest.mark.parametrize("name", sorted(metadata().to_dict()))
def test_missing_keys(name):
    document = metadata().to_dict()
    del document[name]
    with pytest.raises(InputError, match=f"x.json: metadata without {name}"):
        PlanMetadata.from_dict(document, where="x.json")


def test_a_newer_format_is_refused_before_anything_else():
    with pytest.raises(InputError, match=r"format version 2 is newer than 1.*upgrade"):
        PlanMetadata.from_dict({"format_version": 2})


def test_unknown_keys_are_ignored():
    assert PlanMetadata.from_dict(metadata().to_dict() | {"later": 1}) == metadata()


def test_versions_are_recorded_without_importing_torch():
    assert {"batchplan", "numpy", "python", "torch"} <= set(
        Plan.cut(range(4), Batching(2), num_rows=4).metadata.versions
    )
    script = (
        "import sys; from batchplan.plans import Batching, Plan;"
        "from batchplan.training import EpochPlans, PlanBatchSampler, Recorder, with_rows;"
        "Plan.cut(range(4), Batching(2), num_rows=4);"
        "sys.exit(bool({'torch', 'numba', 'pyarrow', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_names_of_files_that_are_not_utf_8_are_spelled_out():
    made = metadata(options={"exclude": ["a\udcff.npy"], "\udcfe": Path("b\udcfd")})
    assert made.options == {"exclude": ["a\\udcff.npy"], "\\udcfe": "b\\udcfd"}
    assert PlanMetadata.from_dict(made.to_dict()) == made
