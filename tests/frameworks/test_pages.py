"""The programs of the pages that need a framework run as they stand there."""

from __future__ import annotations

import os
import re
import shlex

import numpy as np
import pytest
import torch
from datasets import Dataset
from lightning.pytorch import LightningModule
from transformers import TrainingArguments
from typer.testing import CliRunner

from batchplan.cli.app import app
from batchplan.plans import Batching, Plan
from tests.docs.blocks import ROOT, blocks_of

from .processes import FailedError, run
from .texts import ROWS, load_model, pairs, save_model

_EPOCHS = 2


class Tower(torch.nn.Module):
    """A model whose loss is small if its inputs are."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return {"loss": (self.layer(x) ** 2).mean()}


class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def training_step(self, batch, _step):
        return (self.layer(batch["x"]) ** 2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def run_page(page, names):
    blocks = [block for block in blocks_of(page) if block.like == "frameworks"]
    for block in blocks:
        if block.language == "sh":
            for command, _ in block.commands():
                result = CliRunner().invoke(app, shlex.split(command)[1:])
                assert (result.exit_code, result.output[:5]) == (0, "exact"), result.output
            continue
        exec(compile(block.text, f"{page.name}, line {block.line}", "exec"), names)
    return len(blocks)


def test_frameworks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vectors = np.random.default_rng(0).standard_normal((150, 4)).astype(np.float32)
    dataset = Dataset.from_dict({"x": vectors.tolist()}).with_format("torch")
    Plan.cut(range(150), Batching(64), num_rows=150).save("plan.npz")
    seen = []

    def embed(model, dataset, rows):
        vectors = model.layer(dataset[rows.tolist()]["x"])
        return vectors, vectors

    def train_step(model, batch):
        assert "batchplan_row" not in batch
        seen.append(len(batch["x"]))
        return [model.layer(batch["x"])] * 2

    names = {
        "model": Tower(), "module": Module(), "dataset": dataset, "embed": embed,
        "train_step": train_step,
        "rank": 0, "world_size": 1, "epochs": _EPOCHS, "collate": None,
        "arguments": TrainingArguments(
            "run", per_device_train_batch_size=64, num_train_epochs=_EPOCHS, report_to="none",
            use_cpu=True, save_strategy="no",
        ),
    }  # fmt: skip
    assert run_page(ROOT / "docs" / "frameworks.md", names) == 6
    assert run_page(ROOT / "docs" / "consumption.md", names) == 2
    assert seen == [64, 64, 22] * 8  # four loops of two epochs
    for plans in ("plans/*", "free-plans/*", "run/_plans/*/*", "_plans/*/*"):
        assert len(list(tmp_path.glob(f"{plans}.npz"))) == _EPOCHS


def readme(folder, program):
    os.chdir(folder)
    exec(compile(program, "README.md", "exec"), {})


def test_readme_with_a_plan_of_two_files(tmp_path):
    """What the README says below its program: the plan that its command wrote."""
    text = (ROOT / "README.md").read_text()
    line = re.search(r"`(plans = PlanBatchSampler\(.*?\))`", text)[1]
    imported = re.search(r"`(from batchplan.training import PlanBatchSampler)`", text)[1]
    save_model(tmp_path / "base", 150)
    load_model(tmp_path / "base").save(str(tmp_path / "model"))
    pairs(150).to_parquet(tmp_path / "pairs.parquet")
    x = np.random.default_rng(0).standard_normal((150, 8), np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", x + np.float32(0.1))
    sides = [str(tmp_path / "x.npy"), "--pair", str(tmp_path / "y.npy")]
    output = str(tmp_path / "first.npy")
    assert CliRunner().invoke(app, ["plan", *sides, "-o", output]).exit_code == 0
    source = (block for block in blocks_of(ROOT / "README.md") if block.like == "frameworks")
    (program,) = (block.text for block in source)
    changed = re.sub(r"^plans = .*$", f"{imported}\n{line}", program, flags=re.MULTILINE)
    changed = changed.replace(", callbacks=[plans]", "")
    run(readme, 1, tmp_path, changed)
    assert (tmp_path / "trained").is_dir()


@pytest.mark.parametrize(
    ("page", "devices"), [("README.md", 1), ("README.md", 2), ("skills/batchplan/SKILL.md", 1)]
)
def test_readme(page, devices, tmp_path):
    save_model(tmp_path / "base")
    load_model(tmp_path / "base").save(str(tmp_path / "model"))
    pairs().to_parquet(tmp_path / "pairs.parquet")
    source = (block for block in blocks_of(ROOT / page) if block.like == "frameworks")
    (program,) = (block.text for block in source)
    assert len([line for line in program.splitlines() if line]) <= 15
    small = program.replace("per_device_train_batch_size=64", "per_device_train_batch_size=8")
    assert small != program
    if devices > 1:
        with pytest.raises(FailedError, match="2 processes were started, but the training arg"):
            run(readme, devices, tmp_path, small)
        small = small.replace('Arguments("run",', 'Arguments("run", use_cpu=True,')
    run(readme, devices, tmp_path, small)
    plans = [Plan.load(path) for path in sorted((tmp_path / "run/_plans").glob("*/*.npz"))]
    assert [plan.metadata.world_size for plan in plans] == [devices] * 3
    assert [plan.metadata.num_rows for plan in plans] == [ROWS] * 3
    assert len({plan.metadata.fingerprint for plan in plans}) == 3
    assert (tmp_path / "trained").is_dir()
