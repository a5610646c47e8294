"""The cache of compiled functions: damaged, on a full disk, of another user, or in no folder."""

import importlib
import importlib.util
import os
import pickle
import pkgutil
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType, NoneType

import numba
import numpy as np
import pytest
from numba.core.registry import cpu_target

import batchplan
from batchplan import kernels as home
from batchplan.kernels import njit

SOURCE = """
from batchplan.kernels import njit

@njit
def double(x):
    return 2 * x
"""


def loader(folder):
    """A function that loads a module in the folder anew and returns its compiled function."""
    (folder / "module.py").write_text(SOURCE)

    def load():
        spec = importlib.util.spec_from_file_location("module", folder / "module.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.double

    return load


@pytest.fixture
def kernels(folder, monkeypatch):
    # the compiler reads the environment again if a test before has changed it, and would undo this
    numba.config.reload_config()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(folder / "cache"))
    return loader(folder)


@pytest.fixture(autouse=True)
def unwarned(monkeypatch):
    monkeypatch.setattr(home, "_uncached", [])


def hits(function):
    return sum(function.stats.cache_hits.values())


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("kept", [0, 0.5, 1])
def test_what_is_damaged_is_compiled_and_replaced(kept, kernels, folder):
    assert kernels()(2) == 4
    assert hits(whole := kernels()) == 0
    assert (whole(2), hits(whole)) == (4, 1)
    (file,) = files(folder / "cache")
    content = bytearray(file.read_bytes()[: int(kept * file.stat().st_size)])
    content[-1:] = b"?"  # which pickle would not notice
    file.write_bytes(content)
    damaged = kernels()
    assert (damaged(2), hits(damaged)) == (4, 0)
    mended = kernels()
    assert (mended(2), hits(mended)) == (4, 1)


def test_what_other_versions_or_processors_compiled_is_compiled_again(kernels, monkeypatch):
    codegen = type(cpu_target.target_context.codegen())
    for thing, name, value in (
        (home.numba, "__version__", "0"),
        (home.llvmlite, "__version__", "0"),
        (home.np, "__version__", "0"),
        (codegen, "magic_tuple", lambda _: ("other",)),
        (sys.implementation, "cache_tag", "other"),
    ):
        assert kernels()(2) == 4
        same = kernels()
        assert (same(2), hits(same)) == (4, 1), name
        with monkeypatch.context() as patch:
            patch.setattr(thing, name, value)
            other = kernels()
            assert (other(2), hits(other)) == (4, 0), name


PARTS = {
    "limits": "LIMIT = 2\nOTHER = 3",
    "pieces": """
from collections import namedtuple
from batchplan.kernels import njit
Piece = namedtuple("Piece", "size")

@njit
def inner(x):
    return 10 * x
""",
    "outer": """
from batchplan.kernels import njit
from sub.limits import LIMIT
from sub.pieces import Piece, inner

@njit
def whole(x):
    return inner(x) + LIMIT
""",
    "alone": """
from batchplan.kernels import njit

@njit
def alone(x):
    return x
""",
}


@pytest.mark.parametrize(
    ("file", "old", "new", "compiled", "result"),
    [
        ("pieces", "10 * x", "20 * x", {"inner", "whole"}, 42),
        ("limits", "LIMIT = 2", "LIMIT = 5", {"whole"}, 25),
        ("limits", "OTHER = 3", "OTHER = 4", set(), 22),
        ("alone", "return x", "return -x", {"alone"}, 22),
        ("outer", "+ LIMIT", "- LIMIT", {"whole"}, 18),
    ],
)
def test_only_kernels_that_changed_are_compiled(
    file, old, new, compiled, result, folder, monkeypatch
):
    """A kernel changed if a file of what it calls did, or a number that it reads."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(folder / "cache"))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (folder / "sub").mkdir()
    for name, text in PARTS.items():
        (folder / "sub" / f"{name}.py").write_text(text)
    changed = folder / "sub" / f"{file}.py"
    for text in (changed.read_text(), changed.read_text().replace(old, new)):
        changed.write_text(text)
        for name in [name for name in sys.modules if name.partition(".")[0] == "sub"]:
            monkeypatch.delitem(sys.modules, name)
        modules = {name: importlib.import_module(f"sub.{name}") for name in PARTS}
        pieces, outer = modules["pieces"], modules["outer"]
        functions = {"inner": pieces.inner, "whole": outer.whole, "alone": modules["alone"].alone}
        found = {name: function(2) for name, function in functions.items()}
    assert found["whole"] == result
    assert {name for name, function in functions.items() if not hits(function)} == compiled


def test_stamps_know_all_that_kernels_read():
    """Globals of another kind, such as arrays or modules of the package, would not be stamped."""
    kernels = set()
    for found in pkgutil.walk_packages(batchplan.__path__, "batchplan."):
        with suppress(ModuleNotFoundError):  # what is not installed: trainers, Triton, Ray
            module = importlib.import_module(found.name)
            kernels |= {own.py_func for own in vars(module).values() if hasattr(own, "py_func")}
    assert len(kernels) > 100
    for kernel in kernels:
        for name in home._names(kernel.__code__):
            value = kernel.__globals__.get(name)
            function = getattr(value, "py_func", getattr(value, "_defn", value))
            known = (FunctionType, BuiltinFunctionType, type, NoneType, *home._CONSTANTS)
            assert isinstance(function, known) or value is np, (kernel, name)


def test_processes_that_keep_kernels_at_once_lose_none(kernels, folder, monkeypatch):
    """Of one function, each for types of its own and for one of all."""
    monkeypatch.setitem(sys.modules, "module", ModuleType("module"))  # which their code refers to

    def work(number):
        function = kernels()
        assert repr(function((2, 2.0)[number % 2])) == ("4", "4.0")[number % 2]
        assert repr(function(True)) == "2"

    copies = []
    for number in range(6):
        if (copy := os.fork()) == 0:
            work(number)
            os._exit(0)
        copies.append(copy)
    assert [os.waitpid(copy, 0)[1] for copy in copies] == [0] * 6
    assert len(files(folder / "cache")) == 3
    function = kernels()
    assert (repr(function(2)), repr(function(2.0)), repr(function(True))) == ("4", "4.0", "2")
    assert hits(function) == 3


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
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "file"))
    with pytest.warns(RuntimeWarning, match="file/batchplan cannot be used .*set NUMBA_CACHE_DIR"):
        assert kernels()(2) == 4


def test_a_function_without_a_file():
    names = {}
    with pytest.warns(RuntimeWarning, match="the source of double cannot be read"):
        exec(compile(SOURCE, "<prompt>", "exec"), names)
    assert names["double"](2) == 4


def test_functions_that_differ_in_a_value_around_them(kernels):
    def adder(added):
        @njit
        def add(x):
            return x + added

        return add

    assert [adder(added)(1) for added in (1, 2)] == [2, 3]


# Other users

OTHER = 65534


class Planted:
    """What another user would have run."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


def give_away(path):
    os.chown(path, OTHER, OTHER)


@pytest.mark.parametrize("spoil", [
    lambda path: path.chmod(0o666),
    pytest.param(give_away, marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can")),
])  # fmt: skip
def test_what_others_may_have_written_is_not_run(spoil, kernels, folder):
    assert kernels()(2) == 4
    (file,) = files(folder / "cache")
    code = pickle.dumps(Planted())

    def plant():
        file.write_bytes(kernels()._cache._digest(code) + code)

    plant()
    assert kernels()(2) == 4
    (folder / "ran").rmdir()  # so the same would have run below
    plant()
    spoil(file)
    assert kernels()(2) == 4
    assert not (folder / "ran").exists()
    status = file.stat()  # replaced by what was compiled
    assert (status.st_uid, status.st_mode & 0o777) == (os.geteuid(), 0o644)


def test_only_this_user_may_write_to_what_is_kept_whatever_the_umask(kernels, folder):
    before = os.umask(0)
    try:
        assert kernels()(2) == 4
    finally:
        os.umask(before)
    (file,) = files(folder / "cache")
    assert file.stat().st_mode & 0o777 == 0o644


@pytest.fixture
def visible(monkeypatch):
    """A folder to which all users have access, and which only this one may write to."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        monkeypatch.setattr(numba.config, "CACHE_DIR", "")
        yield Path(name)


def as_another_user(work):
    """Do work in a process of another user."""
    if (copy := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setgid(OTHER)
            os.setuid(OTHER)
            os.chdir("/")
            work()
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)
    assert os.waitpid(copy, 0)[1] == 0


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@needs_root
def test_what_root_compiled_serves_every_user(visible, monkeypatch):
    load = loader(visible)
    assert load()(2) == 4
    (visible / "home").mkdir()
    os.chown(visible / "home", OTHER, OTHER)

    def homeless():
        function = load()
        assert (function(2), hits(function)) == (4, 1)
        assert home._uncached == []
        with pytest.warns(RuntimeWarning, match="compiled code is not kept") as told:
            assert [function(2.0), load()(2.0)] == [4.0, 4.0]
        assert len(told) == 1

    def at_home():
        for expected in (0, 1):
            function = load()
            assert (function(2.0), hits(function)) == (4.0, expected)
        assert home._uncached == []

    monkeypatch.setenv("XDG_CACHE_HOME", "/nonexistent")
    as_another_user(homeless)
    monkeypatch.setenv("XDG_CACHE_HOME", str(visible / "home"))
    as_another_user(at_home)
    own = load()  # what that user compiled is not for root
    assert (own(2.0), hits(own)) == (4.0, 0)
