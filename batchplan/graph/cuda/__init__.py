"""Graphs and neighbours on CUDA devices, with kernels written in Triton.

`kernels` holds the kernels and `operands` what they multiply. `sweep` deals strips of rows to
devices; `collect` and `nearest` keep the largest of what a sweep yields.
"""

from importlib.util import find_spec

import torch

from batchplan.errors import ResourceError


def has_kernels(device: torch.device) -> bool:
    """Whether a device uses these kernels."""
    return device.type == "cuda"


def require_triton() -> None:
    """Check that Triton is there, which torch's CUDA wheels include; only CUDA devices need it.

    Raises:
        ResourceError: it is not installed.
    """
    if find_spec("triton") is None:
        raise ResourceError(
            "device cuda: the package triton is missing, which torch's CUDA wheels include and the "
            "kernels for CUDA devices need; pip install triton, or use --device cpu"
        )
