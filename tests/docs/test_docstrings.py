"""What is public has a docstring."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import get_args

import batchplan
from batchplan.data.formats import format_of as input_format
from batchplan.data.records import FORMATS as DATA_FORMATS
from batchplan.files.inputs import INPUT_FORMATS
from batchplan.materialize import formats as materialize_formats
from batchplan.materialize.options import FormatName
from batchplan.plans.formats import FORMATS, format_of

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(batchplan.__path__, "batchplan.")
    if not module.name.endswith("__main__")
)
OPTIONAL = {"accelerate", "lightning", "sentence_transformers", "transformers", "triton"}
# `PlanFormat`, `ArrayFormat` and `TableFormat` say once what every format's functions do.
PLAN_FORMATS = [format_of(Path(f"plan{suffix}")) for suffix in FORMATS]
DOCUMENTED_ELSEWHERE = {part for one in PLAN_FORMATS for part in (one.write, one.read)}
for one in (input_format(Path(f"rows{suffix}")) for suffix in INPUT_FORMATS):
    DOCUMENTED_ELSEWHERE |= {getattr(one, "read_header", None), getattr(one, "open", None)}
# So does `OutputFormat` of `batchplan.materialize`.
for one in map(materialize_formats.format_of, get_args(FormatName)):
    DOCUMENTED_ELSEWHERE |= {one.write, one.check, one.index}
DOCUMENTED_ELSEWHERE |= {one.open for one in DATA_FORMATS.values()}


def test_public_names_have_docstrings():
    names = [name for name in batchplan.__all__ if name != "__version__"]
    assert [name for name in names if not inspect.getdoc(getattr(batchplan, name))] == []


def undocumented(module_name):
    """The module and its public names, if they have no docstring of their own."""
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise
        return []  # `make test-frameworks` reads it, or a machine with a GPU
    found = [] if module.__doc__ else [module_name]
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module_name:
            continue
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        written = value.__doc__ or f"{name}("  # as a dataclass gives itself
        if value not in DOCUMENTED_ELSEWHERE and written.startswith(f"{name}("):
            found.append(f"{module_name}.{name}")
    return found


def test_modules_and_their_public_names_have_docstrings():
    assert [one for name in MODULES for one in undocumented(name)] == []
