"""What is public has a docstring."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import get_args

import pytest

import batchplan
from batchplan.data.formats import format_of as input_format
from batchplan.files.inputs import INPUT_FORMATS
from batchplan.materialize import formats as materialize_formats
from batchplan.materialize.options import FormatName
from batchplan.materialize.reading.source import FORMATS as DATA_FORMATS
from batchplan.plans.formats import FORMATS, format_of

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(batchplan.__path__, "batchplan.")
    if not module.name.endswith("__main__")
)
FRAMEWORKS = {
    f"batchplan.training.{name}": name
    for name in ("accelerate", "lightning", "sentence_transformers", "transformers")
}
FRAMEWORKS["batchplan.embedding.encoder"] = "sentence_transformers"
# `PlanFormat`, `ArrayFormat` and `TableFormat` say once what every format's functions do.
PLAN_FORMATS = [format_of(Path(f"plan{suffix}")) for suffix in FORMATS]
DOCUMENTED_ELSEWHERE = {part for one in PLAN_FORMATS for part in (one.write, one.read)}
for one in (input_format(Path(f"rows{suffix}")) for suffix in INPUT_FORMATS):
    DOCUMENTED_ELSEWHERE |= {getattr(one, "read_header", None), getattr(one, "open", None)}
# So does `OutputFormat` of `batchplan.materialize`.
for one in map(materialize_formats.format_of, get_args(FormatName)):
    DOCUMENTED_ELSEWHERE |= {one.write, one.check, one.index}
DOCUMENTED_ELSEWHERE |= {one.open for one in DATA_FORMATS.values()}


@pytest.mark.parametrize("name", [name for name in batchplan.__all__ if name != "__version__"])
def test_public_name_has_a_docstring(name):
    assert inspect.getdoc(getattr(batchplan, name))


@pytest.mark.parametrize("module_name", MODULES)
def test_module_and_its_public_names_have_docstrings(module_name):
    if module_name in FRAMEWORKS:
        pytest.importorskip(FRAMEWORKS[module_name])
    if module_name.startswith("batchplan.graph.cuda."):
        pytest.importorskip("triton")
    module = importlib.import_module(module_name)
    assert module.__doc__, module_name
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module_name:
            continue
        if inspect.isclass(value) or inspect.isfunction(value):
            if value in DOCUMENTED_ELSEWHERE:
                continue
            written = value.__doc__ or ""
            generated = written.startswith(f"{name}(")  # what a dataclass gives itself
            assert written, name
            assert not generated, name
