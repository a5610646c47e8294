"""Refuses models that are spread over several processes where one process runs them alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from batchplan.errors import InputError


@contextmanager
def refusing_shards() -> Iterator[None]:
    """Raise before a sharded model runs, which would wait for the other processes forever.

    Raises:
        InputError: in the body, when a module of FSDP or DeepSpeed ZeRO stage 3 is called.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None:  # then no model of torch can run
        yield
        return
    hook = torch.nn.modules.module.register_module_forward_pre_hook(_require_whole)
    try:
        yield
    finally:
        hook.remove()


def _require_whole(module: Any, _inputs: Any) -> None:
    # A module that FSDP manages is in the class of FSDP; a parameter that is spread over processes
    # has a mesh (DTensor) or an identity of DeepSpeed.
    kinds = {kind.__name__ for kind in type(module).__mro__}
    parts = any(
        hasattr(parameter, "ds_id") or hasattr(parameter, "device_mesh")
        for parameter in module.parameters(recurse=False)
    )
    if parts or not kinds.isdisjoint({"FSDPModule", "FullyShardedDataParallel"}):
        raise InputError(
            f"embed: runs a sharded {type(module).__name__} in the process of rank 0 alone, which "
            "would wait for the others forever; train with DDP or ZeRO stage 2, or plan before the "
            "training (docs/epoch_loop.md)"
        )
