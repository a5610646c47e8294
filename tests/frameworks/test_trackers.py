"""What trackers get of each planned epoch: the files that TensorBoard reads."""

from __future__ import annotations

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from batchplan import Plan

from . import test_multi_dataset, test_sentence_transformers, test_transformers
from .processes import run
from .shown import run_of
from .texts import ROWS, save_model

SECONDS = {"embedding_seconds", "planning_seconds"}
SPENT = {*SECONDS, "embedded_rows"}
FIGURES = {"gain", "false_negatives", "beaten_positives"}
TRACKED = {"report_to": "tensorboard"}
FREE = {"embeddings": "training", "random_epochs": 1}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_model(folder, test_multi_dataset.TOTAL)
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    save_model(folder)
    return folder


def logged(folder):
    """By name, the (step, value) of what was logged of plans, in the order of the steps."""
    (events,) = {path.parent for path in (folder / "run").rglob("events.out.*")}
    read = EventAccumulator(str(events)).Reload()
    prefix = "train/batchplan/"
    return {
        tag.removeprefix(prefix): [(event.step, event.value) for event in read.Scalars(tag)]
        for tag in read.Tags()["scalars"]
        if tag.startswith(prefix)
    }


def trained(make, *arguments, **options):
    trainer = make(*arguments, **options)
    trainer.train()
    return [entry for entry in trainer.state.log_history if "batchplan/gain" in entry]


@pytest.mark.parametrize(
    ("devices", "options", "epochs"),
    [
        (1, {"planner": "partition"}, [0, 1]),
        (2, {"planner": "partition", "ahead": 0.4, **FREE}, [1]),
        (1, {"planner": "partition", "planned_epochs": 1}, [0]),
    ],
)
def test_one_data_set(devices, options, epochs, tmp_path, small):
    make = test_sentence_transformers.make
    histories = run(trained, devices, make, tmp_path, small, arguments=TRACKED, **options)
    found = logged(tmp_path)
    steps = [epoch * -(-ROWS // (4 * devices)) for epoch in epochs]
    assert found.keys() == SPENT | FIGURES
    assert {tuple(step for step, _ in values) for values in found.values()} == {tuple(steps)}
    folder = run_of(tmp_path / "plans")
    plans = [Plan.load(folder / f"plan-000{epoch}.npz").metadata for epoch in epochs]
    for name in FIGURES:
        values = [value for _, value in found[name]]
        assert values == pytest.approx([plan.metrics[name] for plan in plans], abs=1e-6)
    assert all(value > 0 for name in SECONDS for _, value in found[name])
    embedded = 0 if FREE.items() <= options.items() else ROWS
    assert [value for _, value in found["embedded_rows"]] == [embedded] * len(epochs)
    # all processes log, or those of a trainer that gathers what it logs would wait for each other
    assert [len(history) for history in histories] == [len(epochs)] * devices


def test_several_data_sets(tmp_path, saved):
    trained(test_multi_dataset.make, tmp_path, saved, arguments=TRACKED)
    names = {f"{name}/{figure}" for name in test_multi_dataset.SIZES for figure in FIGURES}
    found = logged(tmp_path)
    assert found.keys() >= names
    assert {len(values) for values in found.values()} == {2}


@pytest.mark.parametrize("devices", [1, 2])
def test_a_trainer_of_transformers(devices, tmp_path):
    options = {"arguments": TRACKED, "planner": "partition", "mega_batches": 1}
    run(trained, devices, test_transformers.make, tmp_path, **options)
    found = logged(tmp_path)
    assert found.keys() == SPENT | FIGURES
    assert [len(values) for values in found.values()] == [2] * len(found)
