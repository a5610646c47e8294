"""What else may have the hidden name of a plan's older metadata: nothing hangs, no plan is lost."""

import os
from contextlib import nullcontext

import numpy as np
import pytest

from batchplan import InputError, OutputError
from batchplan.files.atomic import older_path
from batchplan.plans import Batching, Plan


def make(seed=0):
    order = np.random.default_rng(seed).permutation(20)
    return Plan.cut(order, Batching(4), num_rows=20, seed=seed)


@pytest.mark.parametrize("kind", ["pipe", "folder", "huge"])
def test_what_has_the_name_of_the_older_metadata(kind, folder):
    """Loads and saves are the plan's, or a save is refused; nothing waits for a pipe."""
    path = folder / "plan.npy"
    make().save(path)
    older = older_path(folder / "plan.npy.json")
    os.mkfifo(older) if kind == "pipe" else older.mkdir() if kind == "folder" else older.touch()
    if kind == "huge":
        os.truncate(older, 1 << 40)
    assert Plan.load(path).metadata.seed == 0
    saved = kind != "folder"  # whose name cannot be freed
    with nullcontext() if saved else pytest.raises(OutputError, match="could not be written"):
        make(1).save(path, force=True)
    assert Plan.load(path).metadata.seed == saved


def test_a_pipe_made_just_before_it_is_copied(folder, monkeypatch):
    make().save(folder / "plan.npy")

    def link(source, _target):
        os.unlink(source)
        os.mkfifo(source)
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(InputError, match=r"plan\.npy\.json: is not a regular file"):
        make(1).save(folder / "plan.npy", force=True)
