"""Starting is quick: nothing heavy is imported before it is needed."""

import json
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

HEAVY = {"torch", "numba", "llvmlite", "pyarrow", "scipy", "numpy", "pandas", "rich"}
HEAVY |= {"matplotlib", "jinja2"}


def whole_names(*arguments):
    """The modules that a Python process imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "site" in names
    return names


def imported(*arguments):
    """The top-level modules that a Python process imports."""
    return {name.partition(".")[0] for name in whole_names(*arguments)}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        *([name, "--help"] for name in ("gcbs", "random", "evaluate", "check", "report")),
    ],
    ids=" ".join,
)
def test_help_and_version_import_nothing_heavy(arguments):
    modules = imported("-m", "batchplan", *arguments)
    assert "typer" in modules
    assert not modules & HEAVY


@pytest.mark.parametrize(
    "statement", ["import batchplan", "from batchplan import InputError, __version__"]
)
def test_importing_the_package_imports_nothing_heavy(statement):
    modules = imported("-c", statement)
    assert "batchplan" in modules
    assert not modules & {*HEAVY, "typer"}


@pytest.mark.parametrize("command", ["random x.npy -b 8 -q", "inspect x.npy"])
def test_what_compares_no_rows_loads_neither_torch_nor_numba(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.random.default_rng(0).standard_normal((48, 8), np.float32))
    modules = imported("-m", "batchplan", *command.split())
    assert "numpy" in modules
    assert not modules & {"torch", "numba", "scipy", "pyarrow"}


@pytest.mark.parametrize("vectors", ["fixed_size_list", "list"])
def test_reading_parquet_does_not_load_pandas(vectors, tmp_path, monkeypatch):
    """It is installed here, as pyarrow would import it only then."""
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    numbers = pa.array(np.random.default_rng(0).standard_normal(48 * 8), pa.float32())
    x = pa.FixedSizeListArray.from_arrays(numbers, 8)
    if vectors == "list":
        x = x.cast(pa.list_(pa.float32()))
    pq.write_table(pa.table({"id": range(48), "x": x}), "pairs.parquet")
    modules = imported("-m", "batchplan", "random", "pairs.parquet", "--single", "-b", "8", "-q")
    assert "pyarrow" in modules
    assert "pandas" not in modules


def test_the_start_of_the_process_is_told(tmp_path, monkeypatch):
    """All that the stages leave of the time since the process started."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.random.default_rng(0).standard_normal((48, 8), np.float32))
    began = time.perf_counter()
    random = [sys.executable, "-m", "batchplan", "random", "x.npy", "-b", "8", "--json"]
    done = subprocess.run(random, capture_output=True, text=True, check=True)
    wall = time.perf_counter() - began
    facts = json.loads(done.stdout)
    assert list(facts["seconds"]) == ["start-up", "read", "write"]
    assert facts["seconds"]["start-up"] > 0
    assert sum(facts["seconds"].values()) == pytest.approx(facts["seconds_total"], abs=1e-3)
    assert facts["seconds_total"] < wall + 0.05


@pytest.mark.parametrize("name", ["plan", "Plan", "Embeddings", "evaluate", "load_embeddings"])
def test_every_name_loads_when_it_is_used(name):
    import batchplan

    assert name in batchplan.__all__
    assert getattr(batchplan, name).__name__ == name


@pytest.mark.parametrize("package", ["batchplan", "batchplan.training", "batchplan.data"])
def test_dir_lists_what_there_is(package):
    module = __import__(package, fromlist=["*"])
    names = [name for name in dir(module) if not name.startswith("__")]
    assert names
    assert all(hasattr(module, name) for name in names)
    assert not {"annotations", "lazily", "TYPE_CHECKING"} & set(names)
    if package == "batchplan":
        assert {"plan", "evaluate", "Plan", "load_embeddings", "InputError"} <= set(names)


def test_unknown_names_are_refused():
    import batchplan

    with pytest.raises(AttributeError, match="'batchplan' has no attribute 'nothing'"):
        _ = batchplan.nothing
