"""``python -m tests.benchmarks.no_duplicates``: the samplers of sentence-transformers and ours.

As the library's own benchmark of its samplers does: make one, then take the batches of each
epoch. The data are an English-German dictionary of Debian, `dict-freedict-eng-deu`: each headword
with its first translation. Seconds are those of processors, which other programs do not change.
"""

import argparse
import gc
import gzip
import os
import resource
import subprocess
import tempfile
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
    """Seconds at the start and of each epoch, MB, the batches and what is wrong with them."""
    make = {
        "NoKnownAnswers": NoKnownAnswers,
        "NO_DUPLICATES": NoDuplicatesBatchSampler,
        "NO_DUPLICATES_HASHED": lambda *some, **more: NoDuplicatesBatchSampler(
            *some, precompute_hashes=True, **more
        ),
    }[kind]
    if kind == "NoKnownAnswers":  # kernels are compiled once on a machine
        list(NoKnownAnswers(data.select(range(999)), size // 64, False, generator=Generator()))
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
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
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    start, *each = np.diff(spent)
    return start, np.mean(each), memory, len(sampler), batches


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
                measured_line = process.submit(line, chosen.data, kind, size, chosen.epochs)
                print(measured_line.result(), flush=True)


def line(path, kind, size, epochs):
    disable_progress_bars()
    disable_caching()  # or the hashes of an earlier run would be found
    data = Dataset.load_from_disk(path)
    start, each, memory, length, batches = measured(data, kind, size, epochs)
    lost, known = judged(data, batches)
    return (
        f"{kind:21} B = {size:5,}: start {start:6.2f} s, epoch {each:6.2f} s, {memory:5.0f} MB, "
        f"{len(batches):,} of {length:,} batches, {lost:,} rows lost, {known} known answers"
    )


if __name__ == "__main__":
    main()
