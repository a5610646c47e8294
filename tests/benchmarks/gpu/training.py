"""Fine-tuning MiniLM on a card: shuffled and planned batches, each also with `hardness_mode`.

The encoder and the loss are those of sentence-transformers, in plain torch, since the machine with
the card may lack that library.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

import batchplan
from batchplan.training import EpochPlans, PlanBatchSampler

if TYPE_CHECKING:
    from tests.benchmarks.gpu.stages import Bench

WEIGHTS = "weights.npz"
SIDES = "anchor", "positive"
BATCH, EPOCHS, RATE, SCALE = 64, 2, 1e-4, 20.0
WAYS = {  # whether batches are planned, and the strength of `hardness_mode`
    "shuffled": (False, 0.0),
    "planned": (True, 0.0),
    "shuffled, hardness_mode": (False, 9.0),
    "planned, hardness_mode of strength 4": (True, 4.0),
}


class Encoder(nn.Module):
    """BERT with mean pooling and unit length, from the arrays of its weights.

    Args:
        weights: those of transformers' BertModel by name, and ``heads``, the number of attention
            heads.
    """

    def __init__(self, weights: dict[str, Any]) -> None:
        super().__init__()
        found = {name: torch.from_numpy(np.asarray(value)).float()
                 for name, value in weights.items()}  # fmt: skip
        heads = int(found.pop("heads"))
        width = found["embeddings.word_embeddings.weight"].shape[1]
        inner = found["encoder.layer.0.intermediate.dense.weight"].shape[0]
        for name in ("word", "position", "token_type"):
            rows = found[f"embeddings.{name}_embeddings.weight"]
            self.add_module(name, nn.Embedding.from_pretrained(rows, freeze=False))
        self.norm = _loaded(nn.LayerNorm(width, eps=1e-12), found, "embeddings.LayerNorm")
        self.layers = nn.ModuleList()
        while f"encoder.layer.{len(self.layers)}.output.dense.weight" in found:
            layer = nn.TransformerEncoderLayer(
                width, heads, inner, dropout=0.0, activation="gelu", layer_norm_eps=1e-12,
                batch_first=True,
            )  # fmt: skip
            prefix = f"encoder.layer.{len(self.layers)}"
            for kind in ("weight", "bias"):
                three = [found[f"{prefix}.attention.self.{name}.{kind}"]
                         for name in ("query", "key", "value")]  # fmt: skip
                getattr(layer.self_attn, f"in_proj_{kind}").data = torch.cat(three)
            for part, name in (
                (layer.self_attn.out_proj, "attention.output.dense"),
                (layer.norm1, "attention.output.LayerNorm"),
                (layer.linear1, "intermediate.dense"),
                (layer.linear2, "output.dense"),
                (layer.norm2, "output.LayerNorm"),
            ):
                _loaded(part, found, f"{prefix}.{name}")
            self.layers.append(layer)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(n, d) vectors of unit length of n texts: (n, length) token numbers, 0 for padding."""
        real = tokens != 0
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.norm(self.word(tokens) + self.position(places) + self.token_type.weight[0])
        for layer in self.layers:
            hidden = layer(hidden, src_key_padding_mask=~real)
        share = real.float() / real.sum(1, keepdim=True)
        return normalize((hidden.float() * share[:, :, None]).sum(1))


def _loaded(part: nn.Module, found: dict[str, torch.Tensor], name: str) -> nn.Module:
    part.load_state_dict({kind: found[f"{name}.{kind}"] for kind in ("weight", "bias")})
    return part


def loss(x: torch.Tensor, y: torch.Tensor, hardness: float) -> torch.Tensor:
    """MultipleNegativesRankingLoss of a batch, with ``hardness_mode="in_batch_negatives"``."""
    cosines = x @ y.T
    others = 1 - torch.eye(len(x), device=x.device)
    logits = SCALE * cosines + hardness * others * cosines.detach()
    return cross_entropy(logits, torch.arange(len(x), device=x.device))


class Texts:
    """The tokens of pairs on a device: to train on, and held out.

    Args:
        path: written by `texts`.
        scale: share of the rows to take, at least two batches of each part.
        device: of the tokens.
    """

    def __init__(self, path: Path, scale: float, device: str) -> None:
        with np.load(path) as file:
            self.train, self.held_out = (
                [torch.from_numpy(_first(file[f"{part}_{side}"], scale)).to(device)
                 for side in SIDES]
                for part in ("train", "test")
            )  # fmt: skip

    def __len__(self) -> int:
        return len(self.train[0])

    def batch(self, rows: Any) -> list[torch.Tensor]:
        """The tokens of both sides of some pairs, without padding that all of them have."""
        place = torch.as_tensor(rows, device=self.train[0].device)
        return [_cut(side[place]) for side in self.train]


def _first(tokens: np.ndarray[Any, Any], scale: float) -> np.ndarray[Any, Any]:
    return tokens[: max(2 * BATCH, round(len(tokens) * scale))].astype(np.int64)


def _cut(tokens: torch.Tensor) -> torch.Tensor:
    return tokens[:, : int((tokens != 0).sum(1).max())]


class Run:
    """A model that is trained one way."""

    def __init__(self, bench: Bench, weights: dict[str, Any], texts: Texts) -> None:
        self.bench, self.texts = bench, texts
        self.model = Encoder(weights).to(bench.device).train()
        self.steps = EPOCHS * -(-len(texts) // BATCH)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), RATE, fused=True)
        warmup = max(1, self.steps // 10)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer,
            lambda step: min((step + 1) / warmup, (self.steps - step) / (self.steps - warmup)),
        )

    def step(self, rows: Any, hardness: float) -> list[torch.Tensor]:
        """One step; return the vectors of both sides."""
        with self.autocast():
            x, y = map(self.model, self.texts.batch(rows))
        self.optimizer.zero_grad()
        loss(x, y, hardness).backward()
        self.optimizer.step()
        self.schedule.step()
        return [x.detach(), y.detach()]

    def autocast(self) -> torch.autocast:
        """Products in bfloat16."""
        return torch.autocast(torch.device(self.bench.device).type, torch.bfloat16)

    def _rows(self, rows: Any) -> tuple[torch.Tensor, ...]:
        return tuple(self.embed(self.texts.batch(rows)))

    @torch.no_grad()
    def embed(self, sides: list[torch.Tensor]) -> list[torch.Tensor]:
        """The vectors of both sides, (n, d) each."""
        with self.autocast():
            return [torch.cat([self.model(_cut(part)) for part in side.split(1024)])
                    for side in sides]  # fmt: skip

    def train(self, planned: bool, hardness: float) -> list[float]:
        """Train; return the seconds of each epoch, planning included."""
        seconds = []
        with tempfile.TemporaryDirectory() as folder:
            batches = self._planned(Path(folder), hardness) if planned else self._shuffled(hardness)
            for _ in range(EPOCHS):
                began = time.perf_counter()
                next(batches)
                self.bench.synchronize()
                seconds.append(time.perf_counter() - began)
        return seconds

    def _shuffled(self, hardness: float) -> Iterator[None]:
        generator = np.random.default_rng(0)
        while True:
            order = torch.from_numpy(generator.permutation(len(self.texts)))
            for rows in order.to(self.bench.device).split(BATCH):
                self.step(rows, hardness)
            yield

    def _planned(self, folder: Path, hardness: float) -> Iterator[None]:
        plans = EpochPlans(
            folder / "plans", embed=self._rows, num_rows=len(self.texts), batch_size=BATCH,
            embeddings="training", random_epochs=1, epochs=EPOCHS, device=self.bench.device,
        )  # fmt: skip
        sampler = PlanBatchSampler(plans)
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)
            for rows in sampler:
                plans.record(rows, *self.step(rows, hardness))
            self.bench.record.put(
                f"seconds of planning, epoch {epoch}", plans.figures.get("planning_seconds", 0.0)
            )
            yield

    def ndcg(self) -> float:
        """nDCG@10 in percent over the held-out pairs, the mean of both directions."""
        x, y = self.embed(self.texts.held_out)
        found = 0.0
        for scores in (x @ y.T, y @ x.T):
            rank = (scores > scores.diagonal()[:, None]).sum(1)
            gain = 1 / torch.log2(rank.double() + 2)
            found += 50 * float(torch.where(rank < 10, gain, 0.0).mean())
        return found


def measure(bench: Bench, pairs: int) -> None:
    """Two epochs each way, of so many pairs."""
    path = bench.texts / f"{pairs}.npz"
    if not path.exists():
        bench.put("not run", f"no {path}: python -m tests.benchmarks.gpu.texts {bench.texts}")
        return
    with np.load(bench.texts / WEIGHTS) as file:
        weights = dict(file)
    texts = Texts(path, bench.scale, bench.device)
    bench.put("pairs", float(len(texts)))
    warm = Run(bench, weights, texts)
    bench.put("nDCG@10 before training", warm.ndcg())
    warm.step(range(BATCH), 0.0)
    vectors = warm.embed([side[:2048] for side in texts.train])
    taken, _ = bench.timed(
        lambda: batchplan.plan(*(side.half() for side in vectors), device=bench.device)
    )
    bench.put(f"seconds, first plan of {len(vectors[0])} rows, with compilation", taken)
    base = 0.0
    for name, (planned, hardness) in WAYS.items():
        run = Run(bench, weights, texts)
        seconds = run.train(planned, hardness)
        bench.put(f"{name}: seconds of an epoch, the first", seconds[0])
        bench.put(f"{name}: seconds of an epoch, the second", seconds[1])
        bench.put(f"{name}: nDCG@10", run.ndcg())
        base = base or sum(seconds)  # of shuffled batches, which come first
        bench.put(f"{name}: time over that of shuffled batches", sum(seconds) / base)
    bench.memory()
