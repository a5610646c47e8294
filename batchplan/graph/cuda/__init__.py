"""Graphs and neighbours on CUDA devices, with kernels written in Triton.

`kernels` has the kernels and `operands` the rows that they multiply. `sweep` deals strips of rows
to devices. `collect` and `nearest` keep the largest similarities of a sweep.
"""

from importlib.util import find_spec

import torch

from batchplan.errors import ResourceError


def has_kernels(device: torch.device) -> bool:
    """Whether a device uses these kernels."""
    return device.type == "cuda"


def require_triton() -> None:
    """Check that Triton is installed. torch's CUDA wheels include it; only CUDA devices need it.

    Raises:
        ResourceError: it is not installed.
    """
    if find_spec("triton") is None:
        raise ResourceError(
            "device cuda: the package triton is missing, which torch's CUDA wheels include and the "
            "kernels for CUDA devices need; pip install triton, or use --device cpu"
        )
