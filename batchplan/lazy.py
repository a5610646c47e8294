"""Lets packages import their modules on first use, so that importing a package is instant."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from batchplan.extras import missing_told


def lazily(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """A module-level ``__getattr__`` and ``__dir__`` for ``package`` (PEP 562).

    The package has the names that its ``__init__.py`` imports under ``if TYPE_CHECKING:``, where
    type checkers see them. The first use of a name imports its module. ``dir`` lists ``__all__``,
    or else these names.

    Args:
        package: the package's ``__name__``.
        file: the package's ``__file__``.

    ``__getattr__`` raises `MissingPackageError` if a module needs a package that is not installed.
    """
    homes = {
        alias.name: statement.module
        for block in ast.parse(Path(file).read_bytes()).body
        if isinstance(block, ast.If)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for alias in statement.names
    }

    def __getattr__(name: str) -> object:  # noqa: N807
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with missing_told():
            return getattr(import_module(homes[name]), name)

    def __dir__() -> list[str]:  # noqa: N807
        return sorted(getattr(sys.modules[package], "__all__", homes))

    return __getattr__, __dir__
