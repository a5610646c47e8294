"""``python -m tests.benchmarks.no_duplicates``: the samplers of sentence-transformers and ours.

As the library's own benchmark of its samplers does: make one, then take the batches of each
epoch. The data are an English-German dictionary of Debian, `dict-freedict-eng-deu`: each headword
with its first translation. Seconds are those of processors, which other programs do not change.
"""

import argparse
import gc
import gzip
import os
import subprocess
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from datasets import Dataset, disable_caching, disable_progress_bars
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler
from torch import Generator

from batchplan.data.answers import Answers
from batchplan.plans.batching import Batching
from batchplan.plans.plan import Plan
from batchplan.quality.known import known_negatives
from batchplan.training.sentence_transformers import NoKnownAnswers
from batchplan.training.text_columns import TextColumns

PACKAGE = "dict-freedict-eng-deu"
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def dictionary():
    """A Dataset of English and German texts."""
    with tempfile.TemporaryDirectory() as folder:
        download = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", PACKAGE]
        subprocess.run(download, check=True, cwd=folder)
        (file,) = Path(folder).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", str(file), folder], check=True)
        (index,) = Path(folder).rglob("*.index")
        text = gzip.decompress(next(Path(folder).rglob("*.dict.dz")).read_bytes())
        lines = index.read_text().splitlines()
    pairs = []
    for line in lines:
        word, start, size = line.split("\t")[:3]
        start, size = (sum(DIGITS.index(d) * 64**k for k, d in enumerate(n[::-1]))
                       for n in (start, size))  # fmt: skip
        body = [own.strip() for own in text[start : start + size].decode().splitlines()[1:]]
        body = [own for own in body if own and not own.startswith(('"', "Synonym", "see:", "Note"))]
        if not word.startswith("00database") and body:
            pairs.append((word, body[0]))
    english, german = zip(*pairs, strict=True)
    return Dataset.from_dict({"anchor": english, "positive": german})


def measured(data, kind, size, epochs):
    """Seconds at the start and of each epoch, when they began and ended, and the batches."""
    make = {
        "NoKnownAnswers": NoKnownAnswers,
        "NO_DUPLICATES": NoDuplicatesBatchSampler,
        "NO_DUPLICATES_HASHED": lambda *some, **more: NoDuplicatesBatchSampler(
            *some, precompute_hashes=True, **more
        ),
    }[kind]
    if kind == "NoKnownAnswers":  # kernels are compiled once on a machine
        list(NoKnownAnswers(data.select(range(3000)), 1000, False, generator=Generator()))
    gc.collect()
    began = time.monotonic()
    spent = [sum(os.times()[:4])]
    sampler = make(data, size, False, generator=Generator(), seed=1)
    if kind == "NO_DUPLICATES_HASHED":
        sampler._build_hashes()  # which the first epoch would do
    spent.append(sum(os.times()[:4]))
    batches = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        spent.append(sum(os.times()[:4]))
    start, *each = np.diff(spent)
    return start, np.mean(each), (began, time.monotonic()), len(sampler), batches


def own_bytes(pid):
    """Memory of a process and those that it started, without pages of files: shared pages count in
    equal parts."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has ended
        return 0
    own = sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon", "Pss_Shmem")))
    return 1024 * own + sum(map(own_bytes, children))


def judged(data, batches):
    """Lost rows, and known answers among the negatives."""
    codes = TextColumns(data).codes()
    answers = Answers.of(codes[0], codes[1:])
    rows, offsets = np.concatenate(batches), np.append(0, np.cumsum([*map(len, batches)]))
    plan = Plan.from_batches(rows, offsets, Batching(len(batches[0])), num_rows=len(data))
    return len(data) - len(rows), known_negatives(plan, answers).known


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, nargs="+", default=[128, 8192])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--kind", nargs="+", default=["NoKnownAnswers", "NO_DUPLICATES_HASHED"])
    parser.add_argument("--data", required=True, help="a folder, made if it is missing")
    chosen = parser.parse_args()
    disable_progress_bars()
    if not Path(chosen.data).exists():
        dictionary().save_to_disk(chosen.data)
    for size in chosen.batch_size:
        for kind in chosen.kind:
            # A process each, for its memory; those of a Pool could have no children.
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                future = process.submit(line, chosen.data, kind, size, chosen.epochs)
                (pid,), held = process._processes, []
                while not future.done():
                    held.append((time.monotonic(), own_bytes(pid)))
                    time.sleep(0.01)
            (began, ended), text = future.result()
            before = [own for when, own in held if when < began][-1]
            most = max(own for when, own in held if began <= when <= ended)
            print(text.replace("MEMORY", f"{(most - before) / 2**20:5.0f} MB"), flush=True)


def line(path, kind, size, epochs):
    disable_progress_bars()
    disable_caching()  # or the hashes of an earlier run would be found
    data = Dataset.load_from_disk(path)
    start, each, times, length, batches = measured(data, kind, size, epochs)
    lost, known = judged(data, batches)
    return times, (
        f"{kind:21} B = {size:5,}: start {start:6.2f} s, epoch {each:6.2f} s, MEMORY, "
        f"{len(batches):,} of {length:,} batches, {lost:,} rows lost, {known} known answers"
    )


if __name__ == "__main__":
    main()
