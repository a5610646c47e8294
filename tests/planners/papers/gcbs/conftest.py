"""The fixtures of `tests.similarities`."""

from tests.similarities import (  # noqa: F401
    brute,
    data,
    device,
    device_code,
    embeddings,
    kernels,
    screening,
)
