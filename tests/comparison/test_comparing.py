"""A comparison from Python: settings are mappings, and each planner reads the data again."""

import numpy as np

import batchplan
from batchplan import Plan, load_embeddings, plan


def test_settings_from_python(tmp_path):
    rows = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", rows)
    tables = {"later": {"planner": "shuffled", "epoch": 3}, "random": {"batch-size": 21}}
    found = batchplan.compare(
        tmp_path / "x.npy", planners=tables, batch_size=4, random_trials=2, seed=5, device="cpu",
        single=True, memory="8GB", folder=tmp_path / "kept",
    )  # fmt: skip
    assert [one.setting.name for one in found.plans] == ["later"]
    ((setting, failure),) = found.failures
    assert (setting.name, failure.status) == ("random", 3)
    data = load_embeddings(tmp_path / "x.npy", single=True)
    kept = Plan.load(tmp_path / "kept/later.npz")
    expected = plan(data, planner="shuffled", seed=5, epoch=3, batch_size=4, device="cpu")
    assert kept.rows.tolist() == expected.rows.tolist()
    assert kept.metadata == expected.metadata
    np.save(tmp_path / "y.npy", rows[:, ::-1])
    pairs = batchplan.compare(
        tmp_path / "x.npy", tmp_path / "y.npy", planners=["random", "gcbs"], batch_size=4,
        device="cpu", similarity="dot",
    )  # fmt: skip
    assert {one.setting.options.similarity for one in pairs.plans} == {"dot"}
    assert {"read", "write"} <= set(found.plans[0].cost.stages)


def test_random_batches_of_each_tail_and_size(tmp_path):
    """Plans whose batches have other sizes have random batches of their own."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((21, 4)))
    tables = {"keep": {}, "again": {}, "drop": {"tail": "drop"}, "small": {"batch_size": 4}}
    tables = {name: {"planner": "random", **table} for name, table in tables.items()}
    found = batchplan.compare(
        tmp_path / "x.npy", planners=tables, batch_size=8, random_trials=2, device="cpu",
        single=True,
    )  # fmt: skip
    ranks = {one.setting.name: place for place, one in enumerate(found.plans, 1)}
    same = sorted([ranks["keep"], ranks["again"]])
    named = [f"random for {same[0]}, {same[1]}", f"random for {ranks['drop']}"]
    lines = {line[1]: line for line in found.table()[5:]}
    assert lines.keys() == {*named, f"random for {ranks['small']}"}
    loss = found.table()[0].index("loss")
    for name, own in [("keep", named[0]), ("drop", named[1])]:
        measured = found.plans[ranks[name] - 1].evaluation.to_dict()
        assert lines[own][loss] == f"{measured['loss_random']:.4f}"
