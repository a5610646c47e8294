"""The folder of a run of a trainer: where its plans are, in a folder with other runs."""

import os
import time
from pathlib import Path
from secrets import token_hex
from typing import Any

from batchplan.files.remote import no_url
from batchplan.training.checks import process_group

FOLDER = "_plans"  # in the output folder of a trainer; _ keeps it from the Hugging Face Hub
STATE = "batchplan"  # the key under which a checkpoint has the name of its run


def agree_on_run(state: Any) -> str:
    """Return the name of the folder of a run, which is the same in all processes.

    It is never an earlier run's, even if that was removed: a checkpoint may still name it.

    Args:
        state: what the checkpoint has under `STATE`, if the run resumes from one. Rank 0's
            counts. A run whose checkpoint names no folder gets a new one.
    """
    kept = state.get("run") if isinstance(state, dict) else None
    names = [kept or f"{time.strftime('%Y%m%d-%H%M%S')}-{token_hex(4)}"]
    if distributed := process_group():
        distributed.broadcast_object_list(names)
    return os.path.basename(str(names[0]))


def folder_of(run: str, folder: str | os.PathLike[str] | None, output: str) -> Path:
    """Return the folder of a run, in the one that was named, or else in the trainer's output.

    Raises:
        InputError: that is a URL.
    """
    return no_url(os.path.join(output, FOLDER) if folder is None else folder) / run
