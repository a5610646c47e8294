"""The packages that batchplan uses, and what installs one that is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from batchplan.errors import MissingPackageError

DISTRIBUTION = "batchplanner"  # on PyPI, where another project is called batchplan
# Packages of every installation except ``pip install --no-deps``, which reads plans with NumPy.
_USUAL = ("llvmlite", "numba", "numpy", "pyarrow", "rich", "scipy", "torch", "typer")
_MODELS = "huggingface_hub", "safetensors", "sentence_transformers", "tokenizers", "transformers"
_INSTALLED_BY = {
    **dict.fromkeys(_USUAL, DISTRIBUTION),
    "jinja2": f"'{DISTRIBUTION}[report]'",
    "matplotlib": f"'{DISTRIBUTION}[report]'",
    "pandas": "pandas",
    "ray": f"'{DISTRIBUTION}[ray]'",
    **dict.fromkeys(_MODELS, f"'{DISTRIBUTION}[sentence-transformers]'"),
}


def refusal(error: ModuleNotFoundError) -> str | None:
    """Return the message about a missing module, or None if batchplan does not use it."""
    package = (error.name or "").partition(".")[0]
    if package not in _INSTALLED_BY:
        return None
    return f"{package}: is not installed; run pip install {_INSTALLED_BY[package]}"


@contextmanager
def missing_told() -> Iterator[None]:
    """Say what to install if a package is missing; also a decorator.

    Raises:
        MissingPackageError: instead of a ModuleNotFoundError about such a package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (message := refusal(error)) is None:
            raise
        raise MissingPackageError(message) from None
