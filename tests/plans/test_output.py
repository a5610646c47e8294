"""Output paths that are refused, and writes that fail: nothing is lost and nothing left behind."""

import os
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from batchplan import InputError, OutputError
from batchplan.files.atomic import write_files
from batchplan.plans import Batching, Plan, check_output

SUFFIXES = (".npy", ".parquet", ".npz", ".jsonl", ".txt")


def make(num_rows=10, order=None):
    return Plan.cut(order or range(num_rows), Batching(4), num_rows=num_rows)


def refused(path, message, **options):
    """Refused before the planning, and on saving too, with no file touched."""
    before = snapshot(Path(path).parent)
    with pytest.raises(InputError, match=message):
        check_output(path, **options)
    with pytest.raises(InputError, match=message):
        make().save(path, **options)
    assert snapshot(Path(path).parent) == before


def snapshot(folder):
    if not folder.is_dir():
        return None
    return {path.name: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_existing_file_needs_force(tmp_path, suffix):
    path = tmp_path / f"p{suffix}"
    path.write_text("old")
    refused(path, "exists already; replace it with --force")
    make().save(path, force=True)
    assert len(Plan.load(path)) == 3


def test_an_existing_sidecar_needs_force(tmp_path):
    (tmp_path / "p.npy.json").write_text("other")
    refused(tmp_path / "p.npy", "p.npy.json: exists already")
    (tmp_path / "p.npy.json").unlink()
    (tmp_path / "p.npy.json").mkdir()
    refused(tmp_path / "p.npy", "p.npy.json: is a directory", force=True)


def test_paths_that_cannot_be_written(tmp_path):
    refused(tmp_path / "p.csv", r"expected one of \.npy, \.parquet, \.npz, \.jsonl, \.txt")
    refused(tmp_path / "none" / "p.npy", "none does not exist")
    (tmp_path / "d.npy").mkdir()
    refused(tmp_path / "d.npy", "is a directory", force=True)
    os.mkfifo(tmp_path / "f.txt")
    refused(tmp_path / "f.txt", "not a regular file", force=True)
    (tmp_path / "null.txt").symlink_to("/dev/null")
    refused(tmp_path / "null.txt", "not a regular file", force=True)
    check_output("-")


def test_a_link_that_leads_to_itself(tmp_path):
    (tmp_path / "a.npy").symlink_to("b.npy")
    (tmp_path / "b.npy").symlink_to("a.npy")
    for force in (False, True):
        refused(tmp_path / "a.npy", "cannot be written .Too many levels of", force=force)
    (tmp_path / "c.npy.json").symlink_to("c.npy.json")
    refused(tmp_path / "c.npy", "c.npy.json: cannot be written .Too many levels of", force=True)
    assert (tmp_path / "a.npy").is_symlink()


def test_names_that_are_too_long(tmp_path):
    """That of the metadata counts too, in bytes."""
    most = os.pathconf(tmp_path, "PC_NAME_MAX")
    for name in ("a" * (most - 3), "a" * (most - 8), "\u00e9" * ((most - 8) // 2 + 1), "a" * 5000):
        refused(tmp_path / f"{name}.npy", r"cannot be written \(File name too long\)")
    make().save(tmp_path / f"{'a' * (most - 9)}.npy")
    make().save(tmp_path / f"{'a' * (most - 4)}.npz")
    with pytest.raises(InputError, match=r"folder .* does not exist|File name too long"):
        check_output(tmp_path / ("b/" * 3000) / "a.npy")


def test_a_working_directory_that_is_gone(tmp_path, monkeypatch):
    gone, there = tmp_path / "gone", tmp_path / "p.npy"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InputError, match=r"^p\.npy: cannot be written \(No such file"):
        check_output("p.npy", inputs=["x.npy"])
    with pytest.raises(InputError, match="No such file or directory"):
        make().save("p.npy")
    make().save(there, inputs=["x.npy", "*.npy"])
    assert len(Plan.load(there)) == 3


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folder_that_is_not_writable(tmp_path):
    tmp_path.chmod(0o500)
    refused(tmp_path / "p.npy", "not writable")


def test_inputs_are_never_written(tmp_path):
    (tmp_path / "in").mkdir()
    source = tmp_path / "in" / "x.npy"
    source.write_text("embeddings")
    (tmp_path / "link.npy").symlink_to(source)
    for path in (source, tmp_path / "link.npy"):
        refused(path, "would overwrite or join the input", inputs=[source], force=True)
    refused(tmp_path / "in" / "p.npy", "would overwrite or join", inputs=[str(tmp_path / "in")])
    (tmp_path / "door").symlink_to(tmp_path / "in")
    refused(tmp_path / "door" / "p.npy", "would overwrite or join", inputs=[tmp_path / "in"])
    sidecar = tmp_path / "q.npy.json"
    sidecar.write_text("{}")
    refused(tmp_path / "q.npy", "would overwrite or join", inputs=[sidecar], force=True)
    check_output(tmp_path / "p.npy", inputs=[tmp_path / "in", tmp_path / "missing"])


def test_permissions_follow_the_umask_or_the_old_file(tmp_path):
    old = os.umask(0o027)
    try:
        make().save(tmp_path / "p.npy")
    finally:
        os.umask(old)
    assert modes(tmp_path) == {"p.npy": 0o640, "p.npy.json": 0o640}
    (tmp_path / "p.npy").chmod(0o604)
    make().save(tmp_path / "p.npy", force=True)
    assert modes(tmp_path) == {"p.npy": 0o604, "p.npy.json": 0o640}


def modes(folder):
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def test_a_symbolic_link_is_written_through(tmp_path):
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "a.npy", tmp_path / "link.npy"
    link.symlink_to(real)
    make().save(link)  # the target need not exist yet
    assert link.is_symlink()
    assert not real.is_symlink()
    assert len(Plan.load(link)) == 3


def test_a_link_to_a_saved_plan_finds_its_metadata(tmp_path):
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "a.npy", tmp_path / "latest.npy"
    make().save(real)
    link.symlink_to(real)
    assert Plan.load(link).batch_size == 4
    make(order=list(range(9, -1, -1))).save(link, force=True)
    assert Plan.load(link).rows.tolist() == Plan.load(real).rows.tolist() == list(range(9, -1, -1))


SAVE = """
import sys
from batchplan import OutputError
from batchplan.plans import Batching, Plan
plan = Plan.cut(range(200_000), Batching(64), num_rows=200_000)
try:
    plan.save(sys.argv[1], force=True)
except OutputError as error:
    print(error)
    sys.exit(5)
"""


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_leaves_the_old_plan_and_no_temporary_file(tmp_path, suffix):
    path = tmp_path / f"p{suffix}"
    make().save(path)
    before = snapshot(tmp_path)

    def limit():  # the sidecar still fits, the rows do not
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    done = subprocess.run(
        [sys.executable, "-c", SAVE, path], capture_output=True, text=True, preexec_fn=limit
    )
    assert done.returncode == 5, done.stderr
    assert done.stdout.count("\n") == 1
    assert f"{path}: could not be written (" in done.stdout
    assert done.stderr == ""
    assert snapshot(tmp_path) == before


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_leaves_no_temporary_file(tmp_path):
    script = (
        "import sys, time; from pathlib import Path\n"
        "from batchplan.files.atomic import write_files\n"
        "def write(stream):\n"
        "    stream.write(b'half'); stream.flush(); print('go', flush=True); time.sleep(60)\n"
        "write_files({Path(sys.argv[1]): write})"
    )
    (tmp_path / "p.txt").write_text("old")
    child = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path / "p.txt"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    child.stdout.readline()
    assert len(list(tmp_path.iterdir())) == 2
    child.send_signal(signal.SIGINT)
    child.wait(30)
    child.stdout.close()
    assert snapshot(tmp_path) == {"p.txt": b"old"}


def test_any_failure_of_a_writer_leaves_everything_as_it_was(tmp_path):
    def fail(stream):
        stream.write(b"half")
        raise RuntimeError("bug")

    (tmp_path / "a").write_text("old")
    with pytest.raises(RuntimeError):
        write_files({tmp_path / "a": lambda stream: stream.write(b"new"), tmp_path / "b": fail})
    with pytest.raises(OutputError, match="none/a: could not be written"):
        write_files({tmp_path / "none" / "a": fail})
    assert snapshot(tmp_path) == {"a": b"old"}


def test_a_crash_between_metadata_and_rows_is_told_on_load(tmp_path):
    make().save(tmp_path / "p.npy")
    make(order=list(range(9, -1, -1))).save(tmp_path / "q.npy")
    os.replace(tmp_path / "q.npy.json", tmp_path / "p.npy.json")  # the first of the two renames
    with pytest.raises(InputError, match="a save was cut short"):
        Plan.load(tmp_path / "p.npy")


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_a_reader_never_sees_half_a_plan(tmp_path, suffix):
    path = tmp_path / f"p{suffix}"
    make(num_rows=200_000).save(path)
    script = SAVE.replace("plan.save", "for _ in range(8): plan.save")
    child = subprocess.Popen([sys.executable, "-c", script, path])
    reads = 0
    deadline = time.monotonic() + 30
    while child.poll() is None and time.monotonic() < deadline:
        assert Plan.load(path).metadata.num_rows == 200_000
        reads += 1
    assert child.wait() == 0
    assert reads


def test_of_two_writers_of_one_file_the_last_wins(tmp_path):
    path = tmp_path / "p.npz"
    script = SAVE.replace("batch_size=64", "batch_size=int(sys.argv[2])").replace(
        "plan.save", "for _ in range(40): plan.save"
    )
    script = script.replace("200_000", "2_000")
    writers = [
        subprocess.Popen([sys.executable, "-c", script, path, size]) for size in ("64", "32")
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert Plan.load(path).batch_size in (64, 32)
    assert [entry.name for entry in tmp_path.iterdir()] == ["p.npz"]
