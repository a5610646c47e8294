"""Packages whose names load their modules when first used, so that importing them stays instant."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path


def lazily(package: str, file: str) -> Callable[[str], object]:
    """A module-level ``__getattr__`` for ``package`` (PEP 562).

    The names that ``file``, its ``__init__.py``, imports under ``if TYPE_CHECKING:`` are those that
    it has: a type checker sees them there, and the first use of each imports its module.

    Args:
        package: the package's ``__name__``.
        file: the package's ``__file__``.
    """
    homes = {
        alias.name: found.module
        for block in ast.parse(Path(file).read_bytes()).body
        if isinstance(block, ast.If)
        for found in block.body
        if isinstance(found, ast.ImportFrom) and found.module
        for alias in found.names
    }

    def __getattr__(name: str) -> object:  # noqa: N807
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return __getattr__
