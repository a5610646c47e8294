"""A comparison from Python: settings are mappings, and each planner reads the data again."""

import numpy as np

from batchplan import load_embeddings, plan
from batchplan.comparison import compare, make_setting
from batchplan.comparison.results import Results, origin
from batchplan.quality import EvaluationOptions
from batchplan.runtime import Runtime


def test_settings_from_python(tmp_path):
    rows = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", rows)
    source = {"paths": str(tmp_path / "x.npy"), "cast": False}
    data, shared = load_embeddings(**source), {"batch_size": 4}
    settings = [
        make_setting("later", {"planner": "shuffled", "epoch": 3}, shared),
        make_setting("random", {"batch-size": 21}),
    ]
    options, runtime = EvaluationOptions(random_trials=2), Runtime("cpu", seed=5)
    found = compare(settings, data, source, options, runtime, folder=tmp_path / "kept")
    assert [one.setting.name for one in found.plans] == ["later"]
    ((setting, failure),) = found.failures
    assert (setting.name, failure.status) == ("random", 3)
    kept = Results(tmp_path / "kept").find(settings[0], origin(settings[0], data, 5))
    expected = plan(data, "shuffled", seed=5, epoch=3, batch_size=4, device="cpu")
    assert kept.plan.rows.tolist() == expected.rows.tolist()
    assert kept.plan.metadata == expected.metadata
    assert {"read", "write"} <= set(kept.cost.stages)
