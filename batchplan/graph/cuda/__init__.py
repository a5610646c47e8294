"""Graphs and neighbours on CUDA devices, through kernels written in Triton.

`kernels` holds the kernels, `operands` what they multiply, `sweep` the strips of rows and the
devices that they are dealt to; `collect` and `nearest` keep the largest of what a sweep yields.
"""

from importlib.util import find_spec

import torch

from batchplan.errors import ResourceError


def has_kernels(device: torch.device) -> bool:
    """Whether graphs and neighbours are found there by these kernels."""
    return device.type == "cuda"


def require_triton() -> None:
    """Triton comes with torch's CUDA wheels; nothing imports it where no CUDA device is used.

    Raises:
        ResourceError: it is not installed.
    """
    if find_spec("triton") is None:
        raise ResourceError(
            "device cuda: the package triton is missing, in which the kernels for CUDA devices are "
            "written and which torch's CUDA wheels bring; pip install triton, or use --device cpu"
        )
