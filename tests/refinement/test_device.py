"""Where the products of blocks are taken."""

import numpy as np
import pytest
import torch

import batchplan
from batchplan.data import Embeddings
from batchplan.errors import ResourceError
from batchplan.refinement import make_objective, passes
from batchplan.runtime import Runtime

CPU = Runtime(device="cpu")


def pairs(n=40, paired=True):
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((n, 16)).astype(np.float32) for _ in range(2))
    return Embeddings.from_arrays(x, x + y if paired else None)


@pytest.mark.parametrize("paired", [True, False])
def test_rows_go_to_the_device(monkeypatch, paired):
    objective = make_objective(pairs(paired=paired), CPU, similarity="cosine", temperature=0.1)
    assert passes._placed(objective, CPU) is objective
    monkeypatch.setattr(Runtime, "torch_device", lambda _: torch.device("meta"))
    placed = passes._placed(objective, CPU)
    assert {placed.x.device.type, placed.y.device.type} == {"meta"}
    assert (placed.x is placed.y) == (objective.x is objective.y)
    assert objective.x.device.type == "cpu"


def test_rows_that_the_device_has_no_room_for(monkeypatch):
    objective = make_objective(pairs(), CPU, similarity="cosine", temperature=0.1)
    monkeypatch.setattr(Runtime, "torch_device", lambda _: torch.device("meta"))
    monkeypatch.setattr(Runtime, "memory_left", lambda *_: 1 << 20)
    with pytest.raises(ResourceError, match=r"refine: the blocks of 40 rows.*use --device cpu"):
        passes._placed(objective, CPU)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("options", [{}, {"max_score": 0.4}])
def test_as_good_on_a_device(options):
    data = pairs(4000)
    losses = []
    for device in ("cpu", "cuda", "cuda"):
        plan = batchplan.plan(data, planner="partition", batch_size=32, device=device, **options)
        losses.append(batchplan.evaluate(plan, data, device="cpu").loss_train)
    assert losses[1] == losses[2]
    assert losses[0] == pytest.approx(losses[1], rel=0.01)
