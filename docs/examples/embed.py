"""Write x.npy and y.npy, the embeddings of the training pairs, with the model of a checkpoint.

    python embed.py PAIRS CHECKPOINT FOLDER

Without the checkpoint, the model is a new one.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from train import Towers, embed, load

pairs, checkpoint, folder = sys.argv[1:]
dataset, _ = load(pairs)
model = Towers(dataset.tensors[0].shape[1])
if Path(checkpoint).exists():
    model.load_state_dict(torch.load(checkpoint, weights_only=True)["model"])
for name, side in zip("xy", embed(model, dataset), strict=True):
    np.save(Path(folder) / f"{name}.npy", side)
