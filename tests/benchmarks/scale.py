"""Planning 10^5 to 10^7 pairs: seconds by stage and memory of the real command.

    python -m tests.benchmarks scale --rows 1000000 --dims 384
    python -m tests.benchmarks scale --rows 10000000 --dims 128 --memory 2GB

The pairs are those of ``--data`` and then blends of them (`tests.benchmarks.speed.data.real_like`
says how), made a part at a time; with fewer dimensions, after a random projection. The shards are
float16, kept in ``--folder`` for the next run, and refused where the disk has no room for them.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.quality import load

_SHARD = 250_000  # rows
_PART = 25_000
_MOST_DISK = 20 * 10**9  # bytes


def make_shards(data: Path, folder: Path, rows: int, dims: int) -> None:
    """Pairs like the real ones in ``x`` and ``y`` of a folder, unless they are there.

    Raises:
        SystemExit: they would take more disk than is free, or than 20 GB.
    """
    if (folder / "complete").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    need, free = 4 * rows * dims, shutil.disk_usage(folder).free
    if need > min(_MOST_DISK, free - 2 * 10**9):
        raise SystemExit(
            f"{folder}: the shards need {need / 1e9:.1f} GB, {free / 1e9:.1f} are free"
        )
    embeddings = load(data)
    real = [
        _unit(side.rows(0, embeddings.num_rows).astype(np.float32))
        for side in (embeddings.x, embeddings.y)
    ]
    if dims < embeddings.dim:
        generator = np.random.default_rng(1)
        turn = np.linalg.qr(generator.standard_normal((embeddings.dim, dims)))[0]
        real = [_unit(side @ turn.astype(np.float32)) for side in real]
    dims = real[0].shape[1]
    for name in ("x", "y"):
        (folder / name).mkdir(exist_ok=True)
    for start in range(0, rows, _SHARD):
        count = min(_SHARD, rows - start)
        outs = [
            np.lib.format.open_memmap(
                folder / name / f"part_{start // _SHARD:04d}.npy", "w+", np.float16, (count, dims)
            )
            for name in ("x", "y")
        ]
        for first in range(0, count, _PART):
            stop = min(first + _PART, count)
            blends = _blends(real, start + first, stop - first)
            for out, some in zip(outs, blends, strict=True):
                out[first:stop] = some
    (folder / "complete").touch()


def _blends(real: list[NDArray[np.float32]], first: int, count: int) -> list[NDArray[np.float32]]:
    """A pair, half of another, and noise of a fifth of its length; the first are the real pairs."""
    generator = np.random.default_rng(first)
    pair, other = generator.integers(len(real[0]), size=(2, count))
    sides = []
    for matrix in real:
        noise = generator.standard_normal((count, matrix.shape[1]), np.float32)
        noise *= 0.2 / np.sqrt(matrix.shape[1])
        side = matrix[pair] + 0.5 * matrix[other] + noise
        own = matrix[first : first + count]
        side[: len(own)] = own
        sides.append(_unit(side))
    return sides


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def run(folder: Path, plan: Path, *options: str) -> dict[str, object]:
    """Run ``batchplan partition`` over the shards of a folder: its summary, the seconds of the
    whole process, and the most memory that it held without mapped files."""
    command = [sys.executable, "-m", "batchplan", "partition", str(folder / "x"), "--pair"]
    command += [str(folder / "y"), "-o", str(plan), "--force", "--json", *options]
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    held, ended = [0], threading.Event()
    watcher = threading.Thread(target=_watch, args=[child.pid, held, ended])
    watcher.start()
    text = child.communicate()[0]
    ended.set()
    watcher.join()
    if child.returncode:
        raise SystemExit(f"batchplan ended with status {child.returncode}")
    summary = json.loads(text)
    return {
        "seconds": time.perf_counter() - began,
        **{f"  seconds, {stage}": taken for stage, taken in summary["seconds"].items()},
        "mega-batches": summary["mega_batches"],
        "pairs not separated": summary.get("broken_pairs"),
        "memory without mapped files, GB": max(held) / 1e9,
        "peak resident set, GB": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6,
    }


def _watch(pid: int, held: list[int], ended: threading.Event) -> None:
    while not ended.wait(0.1):
        held.append(_anonymous(pid))


def _anonymous(pid: int) -> int:
    """Bytes of memory of a process that are no mapped file; 0 if it ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.partition("RssAnon:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        return 0


def main(arguments: list[str]) -> None:
    """The command line of ``python -m tests.benchmarks scale``; other options are the command's."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks scale", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("sample_data"), help="folder of pairs")
    parser.add_argument("--rows", type=int, nargs="+", default=[25_000, 50_000, 100_000, 200_000])
    parser.add_argument("--dims", type=int, default=384)
    parser.add_argument("--folder", type=Path, help="of the shards; default a temporary one")
    chosen, options = parser.parse_known_args(arguments)
    taken: list[tuple[int, float]] = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        for rows in chosen.rows:
            folder = (chosen.folder or Path(scratch)) / f"{rows}x{chosen.dims}"
            make_shards(chosen.data, folder, rows, chosen.dims)
            print(f"\n{rows:,} pairs of {chosen.dims} dimensions {' '.join(options)}", flush=True)
            figures = run(folder, Path(scratch) / "plan.npy", *options)
            for name, value in figures.items():
                text = f"{value:.4g}" if isinstance(value, float) else str(value)
                print(f"  {name:<44} {text}", flush=True)
            taken.append((rows, float(str(figures["seconds"]))))
            if not chosen.folder:
                shutil.rmtree(folder)
    if len(taken) > 1:
        (few, short), (many, long) = taken[0], taken[-1]
        print(f"\ngrowth: seconds ~ N ^ {np.log(long / short) / np.log(many / few):.3f}")
