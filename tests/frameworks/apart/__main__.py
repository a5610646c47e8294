"""``python -m tests.frameworks.apart PROGRAM FOLDER ARGUMENT...``: what its ``train`` returns in
each of ``$WORLD_SIZE`` processes, as JSON in a file for each rank. They share one import."""

import json
import multiprocessing
import os
import sys
from importlib import import_module
from pathlib import Path

import torch

program, folder, *arguments = sys.argv[1:]
world_size = int(os.environ.get("WORLD_SIZE", 1))
torch.set_num_threads(1)
train = import_module(f"tests.frameworks.apart.{program}").train


def main(rank):
    if world_size > 1:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    seen = train(Path(folder), rank, world_size, *arguments)
    Path(folder, f"seen-{rank}.json").write_text(json.dumps(seen))


context = multiprocessing.get_context("fork")
processes = [context.Process(target=main, args=(rank,)) for rank in range(world_size)]
for process in processes:
    process.start()
for process in processes:
    process.join()
sys.exit(any(process.exitcode for process in processes))
