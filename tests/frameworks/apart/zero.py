"""ZeRO stage 3 of DeepSpeed, on the CPU: no process has a whole model."""

import os

os.environ |= {"DS_ACCELERATOR": "cpu"}

import deepspeed
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments

from batchplan.training import EpochPlans, PlanBatchSampler, with_rows
from batchplan.training.transformers import PlannedBatches, PlannedEpochs
from tests.frameworks.numbers import ROWS, Rows

STAGE_3 = {"stage": 3, "stage3_param_persistence_threshold": 0}
CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": STAGE_3,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
}
HARD = {"planner": "partition", "mega_batches": 1, "tail": "drop"}


class Towers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.g = torch.nn.Linear(2, 8), torch.nn.Linear(2, 8)

    def sides(self, rows):
        angles = rows[:, None] * torch.tensor([1.0, 0.3])
        return self.f(torch.sin(angles)), self.g(torch.cos(angles))

    def forward(self, rows):
        x, y = self.sides(rows)
        return {"loss": cross_entropy(x @ y.T, torch.arange(len(rows))), "x": x, "y": y}


def train(folder, rank, world_size, how):
    # By gloo alone: DeepSpeed's own kernels for sums are compiled at the first call (a minute),
    # depend on the processor, and wait in a loop, which starves others on few cores.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    return {"loop": in_a_loop, "trainer": in_a_trainer}[how](folder, Towers())


def sharded(model):
    """Whether this process has less than the model."""
    return all(weight.numel() == 0 for weight in model.parameters())


def in_a_loop(folder, model):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    assert sharded(model)

    def embed(rows):
        outputs = engine(torch.from_numpy(rows).float())
        return outputs["x"], outputs["y"]

    plans = EpochPlans(
        folder / "plans", embed=embed, num_rows=ROWS, batch_size=4, embeddings="training",
        ahead=0.4, epochs=2, **HARD,
    )  # fmt: skip
    devices = torch.distributed.get_world_size()
    sampler = PlanBatchSampler(plans, rank=plans.rank, world_size=devices)
    loader, seen = DataLoader(with_rows(Rows()), batch_sampler=sampler), []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch, rows in loader:
            outputs = engine(batch)
            plans.record(rows, outputs["x"], outputs["y"])
            engine.backward(outputs["loss"])
            engine.step()
            seen.append(batch.int().tolist())
    plans.end()
    return seen


class Recorder(PlannedBatches, Trainer):
    seen = ()

    def training_step(self, model, inputs, num_items_in_batch=None):
        self.seen = [*self.seen, inputs["rows"].int().tolist()]
        assert sharded(self.model)
        return super().training_step(model, inputs, num_items_in_batch)

    def compute_loss(self, model, inputs, *others, **named):
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True)
        self.plans.record(outputs["x"], outputs["y"])
        return loss


def in_a_trainer(folder, model):
    def embed(rows):
        return model.sides(torch.from_numpy(rows).float())

    plans = PlannedEpochs(
        Rows(), embed, folder=folder / "plans", embeddings="training", ahead=0.4, **HARD
    )
    arguments = TrainingArguments(
        str(folder / "run"), num_train_epochs=2, per_device_train_batch_size=4, use_cpu=True,
        report_to="none", disable_tqdm=True, save_strategy="no", remove_unused_columns=False,
        deepspeed=CONFIG,
    )  # fmt: skip
    trainer = Recorder(
        model, arguments, lambda rows: {"rows": torch.stack(rows)}, Rows(), callbacks=[plans]
    )
    trainer.plans = plans
    trainer.train()
    return trainer.seen
