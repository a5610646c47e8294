"""Numba's cache of compiled functions: damaged, on a full disk, or with no folder at all."""

import importlib.util
import os
import resource
import signal
import warnings
from contextlib import contextmanager

import numba
import pytest

from batchplan.kernels import _Files

SOURCE = """
from batchplan.kernels import njit

@njit
def double(x):
    return 2 * x
"""


@pytest.fixture
def kernels(folder, monkeypatch):
    """A module with a compiled function, loaded anew with each call."""
    (folder / "module.py").write_text(SOURCE)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(folder / "cache"))

    def load():
        spec = importlib.util.spec_from_file_location("module", folder / "module.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.double

    return load


@pytest.fixture(autouse=True)
def unwarned():
    from batchplan.kernels import _warn_uncached

    _warn_uncached.cache_clear()


def hits(function):
    return sum(function.stats.cache_hits.values())


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("kept", [0, 0.5])
def test_what_is_damaged_is_compiled_and_replaced(suffix, kept, kernels, folder):
    assert kernels()(2) == 4
    assert hits(whole := kernels()) == 0
    assert (whole(2), hits(whole)) == (4, 1)
    (file,) = (folder / "cache").rglob(f"*{suffix}")
    file.write_bytes(file.read_bytes()[: int(kept * file.stat().st_size)])
    damaged = kernels()
    assert (damaged(2), hits(damaged)) == (4, 0)
    mended = kernels()
    assert (mended(2), hits(mended)) == (4, 1)


def test_two_processes_that_compile_at_once_keep_each_their_code(kernels, folder):
    """Of other types, and each before it can see the index of the other."""
    assert kernels()(2) == 4
    (index,) = (folder / "cache").rglob("*.nbi")
    of_integers = index.read_bytes()
    index.unlink()
    assert kernels()(1.5) == 3.0
    index.write_bytes(of_integers)
    assert (repr(kernels()(2)), repr(kernels()(1.5))) == ("4", "3.0")


def test_processes_that_keep_kernels_at_once_lose_none(folder):
    """Of one function; each writes the index anew with every kernel."""

    def files():
        return _Files(str(folder), "function", "stamp")

    copies = []
    for number in range(6):
        if (copy := os.fork()) == 0:
            for turn in range(30):
                files().save((number, turn), b"code")
            os._exit(0)
        copies.append(copy)
    assert [os.waitpid(copy, 0)[1] for copy in copies] == [0] * 6
    assert all(files().load((number, turn)) for number in range(6) for turn in range(30))


@contextmanager
def full_disk():
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)


def test_a_full_disk_is_told_once(kernels, folder):
    with warnings.catch_warnings(record=True) as told, full_disk():
        warnings.simplefilter("always")
        assert [kernels()(2), kernels()(2.0)] == [4, 4.0]
    (one,) = told
    for part in ("compiled code is not kept", "cache", "File too large", "set NUMBA_CACHE_DIR"):
        assert part in str(one.message)
    assert [path for path in (folder / "cache").rglob("*") if path.is_file()] == []


def test_no_folder_at_all(kernels, monkeypatch, folder):
    (folder / "file").write_text("")
    (folder / "__pycache__").write_text("")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(folder / "file"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "file"))
    with pytest.warns(RuntimeWarning, match="neither .* can be written to.*set NUMBA_CACHE_DIR"):
        assert kernels()(2) == 4
