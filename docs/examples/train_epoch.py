"""Train one epoch on a plan, from one checkpoint to the next.

    python train_epoch.py PAIRS PLAN CHECKPOINT NEXT_CHECKPOINT

Without the first checkpoint, the model is a new one.
"""

import os
import sys
from pathlib import Path

import torch
from train import Towers, load, reciprocal_rank, train_epoch

pairs, plan, checkpoint, following = sys.argv[1:]
dataset, held_out = load(pairs)
model = Towers(dataset.tensors[0].shape[1])
optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
if Path(checkpoint).exists():
    kept = torch.load(checkpoint, weights_only=True)
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
loss = train_epoch(model, optimizer, dataset, plan)
kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
torch.save(kept, f"{following}.part")
os.replace(f"{following}.part", following)  # a checkpoint that is there is whole
print(f"{plan}: loss {loss:.4f}, reciprocal rank {reciprocal_rank(model, held_out):.4f}")
