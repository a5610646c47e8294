"""What the README leaves to its reader: a model, its data and a loss, as small as can be."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader, TensorDataset

import batchplan


def names() -> dict[str, object]:
    """The names that the training loop of the README uses without making them."""
    data = batchplan.load_embeddings("sample_data/pairs.parquet")
    sides = (torch.tensor(side.rows(0, 512)).float() for side in (data.x, data.y))
    dataset = TensorDataset(*sides)
    model = torch.nn.Linear(data.dim, 32)

    def embed(model, dataset):
        with torch.no_grad():
            parts = [[model(side) for side in batch] for batch in DataLoader(dataset, 256)]
        return [torch.cat(side).half().numpy() for side in zip(*parts, strict=True)]

    def contrastive_loss(model, batch):
        x, y = (normalize(model(side)) for side in batch)
        return cross_entropy(x @ y.T / 0.05, torch.arange(len(x)))

    return {
        "dataset": dataset,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), 0.1),
        "embed": embed,
        "contrastive_loss": contrastive_loss,
        "epochs": 2,
    }
