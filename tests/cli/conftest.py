"""A terminal in a folder of its own: commands run in process, on real files."""

import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from batchplan.cli.app import app

ROWS, DIM = 48, 8


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The working directory, empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging.root.manager, "disable", logging.INFO)  # what is compiled, perhaps
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture(scope="session")
def pairs():
    """(x, y): float32 pairs, similar but not equal."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((ROWS, DIM)).astype(np.float32)
    return x, x + rng.standard_normal((ROWS, DIM)).astype(np.float32) / 2


@pytest.fixture
def npy(folder, pairs):
    """x.npy and y.npy of `pairs`; the arguments that name them."""
    np.save("x.npy", pairs[0])
    np.save("y.npy", pairs[1])
    return ["x.npy", "--pair", "y.npy"]


@pytest.fixture
def parquet(folder, pairs):
    """pairs.parquet: `pairs` with string ids."""
    lists = {name: pa.array(list(side)) for name, side in zip("xy", pairs, strict=True)}
    pq.write_table(pa.table({"id": [f"row {i}" for i in range(ROWS)], **lists}), "pairs.parquet")
    return "pairs.parquet"


@pytest.fixture
def run():
    """Run a command line; whatever escapes the exit statuses is raised here."""

    def run(*arguments, **options):
        result = CliRunner().invoke(app, [str(one) for one in arguments], **options)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def snapshot(folder):
    """The path and content of everything in the working directory."""

    def snapshot():
        return {
            path.relative_to(folder): path.read_bytes() if path.is_file() else None
            for path in folder.rglob("*")
        }

    return snapshot


@pytest.fixture
def refused(run, snapshot):
    """Run a command that must fail: one line on stderr holding all parts, no file touched."""

    def refused(*arguments, parts=(), code=3):
        before = snapshot()
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (code, ""), result.output
        assert result.stderr.startswith("error: ")
        assert result.stderr.endswith("\n")
        assert len(result.stderr.splitlines()) == 1, result.stderr
        assert "Traceback" not in result.stderr
        for part in parts:
            assert str(part) in result.stderr
        assert snapshot() == before
        return result.stderr

    return refused


@pytest.fixture
def done(run):
    """Run a command that must succeed."""

    def done(*arguments, **options):
        result = run(*arguments, **options)
        assert result.exit_code == 0, result.output
        return result

    return done
