"""``python -m tests.benchmarks.training.transformer``: a small BERT, fine-tuned by the trainer of
sentence-transformers on shuffled batches and on plans of the adapter.

The model has seen nothing but pairs of this machine: a tokenizer and a BERT with random weights are
trained on shuffled batches of other rows first. The learning rate of each kind of batch is the best
of several on rows of its own, with seed 0; the table has the score on further rows at that rate.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from batchplan.training.sentence_transformers import PlannedEpochs
from tests.benchmarks.training.models import reciprocal_rank
from tests.benchmarks.training.pairs import pairs
from tests.benchmarks.training.plans import SHUFFLED

_COLUMNS = ["docstring", "code"]
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
_WORDS, _TOKENS = 8000, 32  # in the vocabulary; in a text, at most
_BATCH_SIZE = 64
_PRETRAINING_RATE, _PRETRAINING_EPOCHS = 1e-3, 3


def new_model(texts: Sequence[str], folder: Path, *, layers: int, width: int) -> None:
    """A folder with a tokenizer that knows the texts, and a BERT with random weights."""
    words = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    camel_case = normalizers.Replace(Regex("(?<=[a-z])(?=[A-Z])"), " ")
    words.normalizer = normalizers.Sequence([camel_case, normalizers.Lowercase()])
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=_WORDS, special_tokens=_SPECIAL)
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", model_max_length=_TOKENS
    )
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=width, num_hidden_layers=layers,
        num_attention_heads=width // 32, intermediate_size=4 * width,
        max_position_embeddings=_TOKENS,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def load(folder: Path) -> SentenceTransformer:
    """The model in a folder, whose vectors are the means of those of the tokens."""
    transformer = Transformer(str(folder))
    width = transformer.get_embedding_dimension()
    return SentenceTransformer(modules=[transformer, Pooling(width)], device="cpu")


def train(
    model: SentenceTransformer,
    rows: Dataset,
    planner: str,
    folder: Path,
    *,
    rate: float,
    seed: int,
    epochs: int,
) -> float:
    """Train on shuffled batches or on a planner's; the seconds of all of it."""
    loss = MultipleNegativesRankingLoss(model)
    planned = {}
    if planner != SHUFFLED:
        planned["batch_sampler"] = PlannedEpochs(folder, rows, loss, planner, seed=1000 * seed)
    steps = epochs * -(-len(rows) // _BATCH_SIZE)
    arguments = SentenceTransformerTrainingArguments(
        str(folder), per_device_train_batch_size=_BATCH_SIZE, num_train_epochs=epochs,
        learning_rate=rate, warmup_steps=steps // 10, seed=seed, use_cpu=True, report_to="none",
        save_strategy="no", logging_strategy="no", disable_tqdm=True, **planned,
    )  # fmt: skip
    trainer = SentenceTransformerTrainer(
        model, arguments, rows, loss=loss, callbacks=list(planned.values())
    )
    start = time.perf_counter()
    trainer.train()
    return time.perf_counter() - start


def score(model: SentenceTransformer, rows: Dataset) -> float:
    """Mean reciprocal rank of each docstring's code among all."""
    x, y = (
        model.encode(rows[name], batch_size=256, normalize_embeddings=True, convert_to_tensor=True)
        for name in _COLUMNS
    )
    return reciprocal_rank(x, y)


def main() -> None:
    options = _options()
    table = pairs().select(_COLUMNS)
    parts, start = [], 0
    for size in (options.held_out, options.judged, options.rows, options.other_rows):
        parts.append(Dataset(table.slice(start, size)))
        start += size
    held_out, judged, rows, other = parts
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = [text for column in _COLUMNS for text in other[column]]
        new_model(texts, folder / "new", layers=options.layers, width=options.width)
        base = load(folder / "new")
        seconds = train(
            base, other, SHUFFLED, folder / "pretraining", rate=_PRETRAINING_RATE, seed=0,
            epochs=_PRETRAINING_EPOCHS,
        )  # fmt: skip
        base.save(str(folder / "base"))
        before = score(base, held_out)
        found: dict[str, Any] = {"before": before, "pretraining seconds": seconds, "runs": []}
        _say(f"pretrained in {seconds:.0f} s: {before:.4f}")

        def run(planner: str, rate: float, seed: int) -> dict[str, Any]:
            model = SentenceTransformer(str(folder / "base"), device="cpu")
            place = folder / f"{planner}-{rate}-{seed}"
            taken = train(
                model, rows, planner, place, rate=rate, seed=seed, epochs=options.epochs
            )  # fmt: skip
            scores = {"judged": score(model, judged), "held out": score(model, held_out)}
            done = {"planner": planner, "rate": rate, "seed": seed, "seconds": taken, **scores}
            found["runs"].append(done)
            _say(" ".join(f"{value:.4g}" if name != "planner" else value
                          for name, value in done.items()))  # fmt: skip
            if options.json:
                options.json.write_text(json.dumps(found, indent=2) + "\n")
            return done

        chosen = {}
        for planner in options.planners:
            tried = [run(planner, rate, 0) for rate in options.rates]
            chosen[planner] = [max(tried, key=lambda done: done["judged"])]
        for seed in range(1, options.seeds):
            for planner, runs in chosen.items():
                runs.append(run(planner, runs[0]["rate"], seed))
    print(markdown(found["runs"], chosen))


def markdown(runs: list[dict[str, Any]], chosen: dict[str, list[dict[str, Any]]]) -> str:
    """A line for each kind of batch."""
    base = [done["held out"] for done in chosen[SHUFFLED]]
    lines = [["", "on the rows that judge, by rate", "rate", "MRR by seed", "gain", "seconds"]]
    lines.append(["---"] * len(lines[0]))
    for planner, best in chosen.items():
        scores = [done["held out"] for done in best]
        tried = {run["rate"]: run["judged"] for run in runs
                 if run["planner"] == planner and run["seed"] == 0}  # fmt: skip
        gains = [100 * (score - other) for score, other in zip(scores, base, strict=True)]
        lines.append([
            f"`{planner}`", ", ".join(f"{rate:g}: {100 * mrr:.2f}" for rate, mrr in tried.items()),
            f"{best[0]['rate']:g}", " ".join(f"{100 * score:.2f}" for score in scores),
            f"{mean(gains):+.2f} ({' '.join(f'{gain:+.2f}' for gain in gains)})",
            f"{mean(done['seconds'] for done in best):.0f}",
        ])  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.training.transformer", description=__doc__
    )
    parser.add_argument("--seeds", type=int, default=3, help="runs of each kind of batch")
    parser.add_argument("--planners", nargs="+", default=["partition"], help="beside shuffled")
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-4, 3e-4, 1e-3])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=4096, help="pairs to fine-tune on")
    parser.add_argument("--other-rows", type=int, default=10_240, help="pairs to train on before")
    parser.add_argument("--judged", type=int, default=1500, help="pairs that choose the rate")
    parser.add_argument("--held-out", type=int, default=2500, help="pairs of the final score")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--json", type=Path, help="also write every run here")
    options = parser.parse_args()
    options.planners = list(dict.fromkeys([SHUFFLED, *options.planners]))
    return options


if __name__ == "__main__":
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    main()
