"""Quicker imports of the large libraries, in a process that is the command's own."""

import gc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

# The garbage collector would look at the hundred thousands of objects that each makes, in vain.
_LARGE = ("numba", "scipy.linalg", "scipy.sparse", "torch")

# What libraries import of themselves though few of their users need it, a third of a second in all:
# operations on tensors without storage, and the wrapping of Fortran.
_UNUSED = ("torch._meta_registrations", "numpy.f2py")


class _WithoutCollector(SourceFileLoader):
    """Makes what a module holds without looking for garbage, then or ever."""

    def exec_module(self, module: ModuleType) -> None:
        collects = gc.isenabled()
        gc.disable()
        try:
            super().exec_module(module)
        finally:
            gc.freeze()
            if collects:
                gc.enable()


class _WhenAsked(SourceFileLoader):
    """Leaves a module empty until somebody looks for what it holds.

    `importlib.util.LazyLoader` would not: `inspect` looks at ``__file__`` of all modules, which
    loads them.
    """

    def exec_module(self, module: ModuleType) -> None:
        def look_up(name: str) -> Any:
            if name.startswith("__") and name != "__all__":
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            del module.__dict__["__getattr__"]
            SourceFileLoader.exec_module(self, module)
            return getattr(module, name)

        module.__dict__["__getattr__"] = look_up


class _Finder:
    """Finds these modules where Python would, and has them loaded in these ways."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        loader = _WithoutCollector if name in _LARGE else _WhenAsked if name in _UNUSED else None
        spec = None if loader is None else PathFinder.find_spec(name, path, target)
        if loader is None or spec is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        spec.loader = loader(spec.loader.name, spec.loader.path)
        return spec


def quicken_imports() -> None:
    """Import large libraries without what this process needs none of."""
    sys.meta_path.insert(0, _Finder)
