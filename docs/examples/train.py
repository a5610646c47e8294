"""Train two towers on batches that are planned again before every epoch.

    python train.py [PAIRS]

A head on each side of frozen vectors, so that an epoch takes a second; the loop is that of a large
model. Prints the loss and the mean reciprocal rank on held-out pairs after each epoch.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader, TensorDataset

import batchplan
from batchplan.training import PlanBatchSampler

EPOCHS = 4
BATCH_SIZE, TEMPERATURE = 64, 0.05
HELD_OUT = 512
LEAST_GAIN = 0.02  # gap reduction below which a plan is not worth training on


class Towers(nn.Module):
    """Unit vectors of both sides: x + f(x) and y + g(y)."""

    def __init__(self, dim):
        super().__init__()
        self.f, self.g = nn.Linear(dim, dim), nn.Linear(dim, dim)
        for tower in (self.f, self.g):  # training starts from the frozen vectors
            nn.init.zeros_(tower.weight)
            nn.init.zeros_(tower.bias)

    def forward(self, x, y):
        return normalize(x + self.f(x), dim=1), normalize(y + self.g(y), dim=1)


def load(path):
    """The pairs to train on, and those held out, as datasets."""
    data = batchplan.load_embeddings(path)
    x, y = (torch.tensor(side.rows(0, data.num_rows)).float() for side in (data.x, data.y))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    held_out, train = order[:HELD_OUT], order[HELD_OUT:]
    return TensorDataset(x[train], y[train]), TensorDataset(x[held_out], y[held_out])


@torch.no_grad()
def embed(model, dataset):
    """Two (N, d) arrays in the order of the dataset: a plan holds row numbers of it."""
    model.eval()
    parts = [model(x, y) for x, y in DataLoader(dataset, batch_size=256, shuffle=False)]
    model.train()
    return [torch.cat(side).half().numpy() for side in zip(*parts, strict=True)]


def train_epoch(model, optimizer, dataset, plan):
    """Train once on every batch of a plan, or of the file of one; the mean loss."""
    losses = []
    for x, y in DataLoader(dataset, batch_sampler=PlanBatchSampler(plan)):
        x, y = model(x, y)
        logits, target = x @ y.T / TEMPERATURE, torch.arange(len(x))
        loss = (cross_entropy(logits, target) + cross_entropy(logits.T, target)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.mean(losses)


def reciprocal_rank(model, dataset):
    """Mean of 1 / the rank of y_i for x_i among all y of the dataset."""
    x, y = (side.astype(np.float32) for side in embed(model, dataset))
    scores = x @ y.T
    return np.mean(1 / (scores >= scores.diagonal()[:, None]).sum(axis=1))


def plan_epoch(model, dataset, epoch):
    """The plan of an epoch, from the model as it is now. With a seed of its own, rows meet others
    than in the epoch before."""
    embeddings = batchplan.Embeddings.from_arrays(*embed(model, dataset))
    plan = batchplan.plan(
        embeddings, planner="partition", batch_size=BATCH_SIZE, temperature=TEMPERATURE, seed=epoch
    )
    found = batchplan.evaluate(
        plan, embeddings, temperature=TEMPERATURE, relative_margin=0.1, random_trials=4
    )
    if found.hardness < LEAST_GAIN:
        raise SystemExit(f"epoch {epoch}: the plan gains {found.hardness:.1%}, look at it")
    return plan


def main(path="sample_data/pairs.parquet"):
    torch.manual_seed(0)
    train, held_out = load(path)
    model = Towers(train.tensors[0].shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    print(f"before: reciprocal rank {reciprocal_rank(model, held_out):.4f}")
    for epoch in range(EPOCHS):
        loss = train_epoch(model, optimizer, train, plan_epoch(model, train, epoch))
        rank = reciprocal_rank(model, held_out)
        print(f"epoch {epoch}: loss {loss:.4f}, reciprocal rank {rank:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
