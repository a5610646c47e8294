"""The programs of docs/recipes.md run as they stand there, but for the size of batches."""

from __future__ import annotations

import os
import re

import pytest

from batchplan.plans import Plan
from tests.docs.blocks import ROOT, blocks_of

from .processes import run
from .texts import ROWS, load_model, pairs, save_model

PAGE = ROOT / "docs" / "recipes.md"
README = ROOT / "README.md"


def program_of(heading):
    """The program under a heading, with small batches."""
    start = PAGE.read_text().count("\n", 0, PAGE.read_text().index(f"## {heading}\n"))
    program = next(
        block.text for block in blocks_of(PAGE) if block.like == "frameworks" and block.line > start
    )
    return program.replace("per_device_train_batch_size=64", "per_device_train_batch_size=8")


def train(folder, program):
    os.chdir(folder)
    exec(compile(program, "recipes.md", "exec"), {})


@pytest.fixture
def folder(tmp_path):
    """A model and pairs of texts."""
    save_model(tmp_path / "base")
    load_model(tmp_path / "base").save(str(tmp_path / "model"))
    pairs().to_parquet(tmp_path / "pairs.parquet")
    return tmp_path


def plans_of(folder):
    return [Plan.load(path) for path in sorted((folder / "run/_plans").glob("*/*.npz"))]


@pytest.mark.parametrize("devices", [1, 2])
def test_several_gpus_with_a_trainer(devices, folder):
    program = program_of("Several GPUs with a Trainer")
    on_cpu = program.replace(
        'TrainingArguments(\n    "run",', 'TrainingArguments("run", use_cpu=True,'
    )
    assert on_cpu != program
    run(train, devices, folder, on_cpu)
    plans = plans_of(folder)
    assert [plan.metadata.world_size for plan in plans] == [devices] * 3
    assert [plan.metadata.num_rows for plan in plans] == [ROWS] * 3
    assert len({plan.metadata.fingerprint for plan in plans}) == 3


def test_several_data_sets(folder):
    """The statements of the recipe in the places of those of the README."""
    rows = pairs()
    rows.select(range(20)).to_parquet(folder / "questions.parquet")
    rows.select(range(20, ROWS)).to_parquet(folder / "captions.parquet")
    (program,) = (block.text for block in blocks_of(README) if block.like == "frameworks")
    for name, statement in zip(
        ("pairs", "plans", "trainer"),
        re.split(r"\n(?=\w)", program_of("Several data sets").strip()),
        strict=True,
    ):
        changed = re.sub(rf"^{name} = .*$", statement, program, flags=re.MULTILINE)
        assert changed != program
        program = changed
    run(train, 1, folder, program.replace("batch_size=64", "batch_size=8"))
    sizes = [
        [
            Plan.load(path).metadata.num_rows
            for path in (folder / "run/_plans").glob(f"*/{name}/*.npz")
        ]
        for name in ("0-questions", "1-captions")
    ]
    assert sizes == [[20] * 3, [ROWS - 20] * 3]


def test_mined_hard_negatives(folder):
    """The line of the recipe in the place of that of the README."""
    line = program_of("Mined hard negatives").strip()
    (program,) = (block.text for block in blocks_of(README) if block.like == "frameworks")
    changed = "import datasets\n" + re.sub(r"^pairs = .*$", line, program, flags=re.MULTILINE)
    save_model(folder / "base", sides="xyn")
    load_model(folder / "base").save(str(folder / "model"))
    negatives = [f"n{row}" for row in range(ROWS)]
    pairs().add_column("negative", negatives).save_to_disk(str(folder / "triplets"))
    run(train, 1, folder, changed.replace("batch_size=64", "batch_size=8"))
    assert [plan.metadata.planner for plan in plans_of(folder)] == [
        "random",
        "partition",
        "partition",
    ]


def test_only_no_duplicates(folder):
    """The line of the recipe in the place of that of the README."""
    line = re.search(r"^plans = .*$", program_of("Only no duplicates"), re.MULTILINE)[0]
    (program,) = (block.text for block in blocks_of(README) if block.like == "frameworks")
    changed = re.sub(r"^plans = .*$", line, program, flags=re.MULTILINE)
    assert changed != program
    twins = pairs().to_dict()
    twins["anchor"][1::2] = twins["anchor"][: ROWS - 1 : 2]
    pairs().from_dict(twins).to_parquet(folder / "pairs.parquet")
    run(train, 1, folder, changed.replace("batch_size=64", "batch_size=8"))
    plans = plans_of(folder)
    assert len({plan.rows.tobytes() for plan in plans}) == len(plans) == 3
    for plan in plans:
        assert plan.metadata.metrics["broken_pairs"] == 0
        assert plan.metadata.planner == "random"
        for batch in plan:
            assert len({row // 2 for row in batch}) == len(batch)
