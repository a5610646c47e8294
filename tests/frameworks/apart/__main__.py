"""``python -m tests.frameworks.apart PROGRAM FOLDER ARGUMENT...``: what its ``train`` returns, as
JSON in a file for each rank."""

import json
import os
import sys
from importlib import import_module
from pathlib import Path

import torch

program, folder, *arguments = sys.argv[1:]
rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.set_num_threads(1)
train = import_module(f"tests.frameworks.apart.{program}").train
seen = train(Path(folder), rank, world_size, *arguments)
Path(folder, f"seen-{rank}.json").write_text(json.dumps(seen))
