"""Folders in which all may make names: what others plant there leads nothing outside, hangs
nothing, and is refused in one line."""

import os
import stat
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from batchplan import InputError, OutputError
from batchplan.files.atomic import older_path, write_files
from batchplan.files.folders import new_folder, resumable_folder
from batchplan.files.planted import target_of
from batchplan.plans import Batching, Plan, Provenance, check_output
from batchplan.training import Recorder

OTHER = os.geteuid() + 1  # a user who is neither us nor root


def make(seed=0):
    order = np.random.default_rng(seed).permutation(20)
    return Plan.cut(order, Batching(4), num_rows=20, provenance=Provenance(seed=seed))


@pytest.fixture
def shared(folder):
    """As /tmp is; beside it is what only its owner may write."""
    mask = os.umask(0o022)
    (folder / "outside").mkdir()
    (folder / "outside/there").write_text("mine")
    (folder / "shared").mkdir()
    (folder / "shared").chmod(0o1777)
    yield folder / "shared"
    os.umask(mask)
    assert [path.name for path in (folder / "outside").iterdir()] == ["there"]
    assert (folder / "outside/there").read_text() == "mine"
    assert stat.S_IMODE((folder / "outside/there").stat().st_mode) == 0o644


@pytest.fixture
def planted(monkeypatch):
    """Makes a file, folder or link that of another user."""

    def planted(path):
        if os.geteuid() == 0:
            os.chown(path, OTHER, OTHER, follow_symlinks=False)
        else:  # only root may give files away
            monkeypatch.setattr(os, "geteuid", partial(int, OTHER))

    return planted


@pytest.fixture
def link(planted):
    """Makes a link of another user."""

    def link(path, target="../outside/new"):
        path.symlink_to(target)
        planted(path)

    return link


@pytest.mark.parametrize("name", ["plan.npy", "plan.npy.json", "plan.npz", "plan.txt.json"])
@pytest.mark.parametrize("target", ["../outside/new", "../outside/there"])
def test_links_at_outputs(name, target, shared, link):
    """Without --force, which a link that leads nowhere does not need, and with it."""
    link(shared / name, target)
    output = shared / name.removesuffix(".json")
    for refusing in (
        lambda: check_output(output, force=True),
        lambda: make().save(output, force=True),
        lambda: write_files({output: b"", shared / name: b""}),
    ):
        with pytest.raises(InputError, match=f"{name} is a link of another user") as error:
            refusing()
        assert "\n" not in str(error.value)
    assert os.listdir(shared) == [name]


def test_links_at_folders(shared, link):
    link(shared / "out")
    for made in (new_folder, resumable_folder):
        with pytest.raises(InputError, match="out is a link of another user"), made(shared / "out"):
            pass
    link(shared / "in", "../outside")
    with pytest.raises(InputError, match="in is a link of another user"):
        make().save(shared / "in/plan.npz")
    link(shared / "trace.0.jsonl")
    with pytest.raises(InputError, match="is a link of another user"):
        Recorder(shared).start()


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_what_is_begun_for_us(kind, shared, link, planted):
    """The name of a folder of a run that can go on is known before it begins."""
    if kind == "link":
        link(shared / "out.partial", "../outside")
    else:
        (shared / "out.partial").mkdir()
        planted(shared / "out.partial")
    with (
        pytest.raises(InputError, match=r"out\.partial: is of another user"),
        resumable_folder(shared / "out"),
    ):
        pass
    assert os.listdir(shared) == ["out.partial"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root replaces files of others there")
def test_the_permissions_of_others_are_not_taken_over(shared, planted):
    path = shared / "plan.npz"
    path.touch()
    path.chmod(0o4666)
    planted(path)
    make().save(path, force=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    path.chmod(0o4600)
    make(1).save(path, force=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_links_of_ours_are_followed(shared, folder):
    for path, target in (("a", "../real"), ("b", "a"), ("real/up", ".."), ("c", shared / "b/up")):
        (folder / "real").mkdir(exist_ok=True)
        (shared if "/" not in path else folder).joinpath(path).symlink_to(target)
    for name in ("a/x", "b/x", "b/../y", "c/real/x", "./b/up/shared/a/x"):
        assert target_of(shared / name) == Path(os.path.realpath(shared / name))
    make().save(shared / "b/plan.npy")
    assert len(Plan.load(folder / "real/plan.npy")) == 5


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder", "file", "huge"])
def test_what_has_the_name_of_the_older_metadata(kind, shared, link, planted):
    """Loads and saves are the plan's, or a save is refused; nothing waits for a pipe."""
    path = shared / "plan.npy"
    make().save(path)
    older = older_path(shared / "plan.npy.json")
    if kind in ("link", "dangling"):
        link(older, f"../outside/{'there' if kind == 'link' else 'new'}")
    else:
        os.mkfifo(older) if kind == "pipe" else older.mkdir() if kind == "folder" else older.touch()
        planted(older)
    if kind == "huge":
        os.truncate(older, 1 << 40)
    assert Plan.load(path).metadata.seed == 0
    saved = kind != "folder"  # whose name cannot be freed
    with nullcontext() if saved else pytest.raises(OutputError, match="could not be written"):
        make(1).save(path, force=True)
    assert Plan.load(path).metadata.seed == saved
    (shared / "plan.npy.json").unlink()
    if kind != "folder":
        assert Plan.load(path, batch_size=4).metadata.seed is None


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("hard_links", [True, False])
def test_a_link_planted_just_before_the_older_metadata(
    existing, hard_links, shared, link, monkeypatch
):
    """After its name was freed, and in file systems without hard links too."""
    path = shared / "plan.npy"
    if existing:
        make().save(path)
    older, unlink = older_path(shared / "plan.npy.json"), os.unlink

    def raced(name, **options):
        try:
            unlink(name, **options)
        finally:
            if Path(name) == older:
                link(older)

    def no_link(*_arguments, **_options):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "unlink", raced)
    if not hard_links:
        monkeypatch.setattr(os, "link", no_link)
    with pytest.raises(OutputError, match="File exists"):
        make(1).save(path, force=True)
    if existing:
        assert Plan.load(path).metadata.seed == 0


def test_a_pipe_planted_just_before_it_is_copied(shared, monkeypatch):
    make().save(shared / "plan.npy")

    def link(source, _target):
        os.unlink(source)
        os.mkfifo(source)
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(InputError, match=r"plan\.npy\.json: is not a regular file"):
        make(1).save(shared / "plan.npy", force=True)


def test_a_link_planted_after_the_look(shared, link, monkeypatch):
    path, lstat = shared / "trace.0.jsonl", os.lstat

    def looked(name):
        try:
            return lstat(name)
        finally:
            if Path(name) == path:
                monkeypatch.setattr(os, "lstat", lstat)
                link(path)

    monkeypatch.setattr(os, "lstat", looked)
    with pytest.raises(OutputError, match="could not be written"):
        Recorder(shared).start()
    path.unlink()
    monkeypatch.setattr(os, "lstat", looked)
    assert target_of(path) == path
