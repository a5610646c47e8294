"""What it costs to record the rows of each step, against a step of a small model."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader, Dataset

from batchplan.plans import Batching, Plan
from batchplan.training import PlanBatchSampler, Recorder

ROWS, BATCH, TOKENS, WORDS, WIDTH, TEMPERATURE = 16_384, 64, 32, 8192, 128, 0.05
ROUNDS, STEPS = 5, 10  # passes over the rows; steps of the model after each


class Tokens(Dataset):
    """Pairs of random texts, as a tokenizer leaves them."""

    def __init__(self) -> None:
        self.tokens = torch.randint(WORDS, (ROWS, 2, TOKENS))

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        x, y = self.tokens[row]
        return {"x": x, "y": y}


class Encoder(nn.Module):
    """As small as BERT-tiny: 2 layers of width 128."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 4 * WIDTH, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return normalize(self.layers(self.table(tokens)).mean(1), dim=1)


def measure(data: Path) -> dict[str, object]:
    """Microseconds of a core that recording adds to a step of 64 rows, against a step of an encoder
    with 2 layers of width 128 in 32 tokens. Medians of 5 passes of 256 steps each."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    plan = Plan.cut(torch.randperm(ROWS).numpy(), Batching(BATCH), num_rows=ROWS)
    tokens, training = Tokens(), _Training()
    added, steps = [], []
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(folder)
        for _ in range(ROUNDS):
            plain, recorded = (
                DataLoader(tokens, batch_sampler=PlanBatchSampler(plan)) for _ in range(2)
            )
            added.append(_seconds(recorder.wrap(recorded)) - _seconds(plain))
            batches = [batch for batch, _ in zip(plain, range(STEPS), strict=False)]
            began = time.process_time()
            for batch in batches:
                training.step(batch)
            steps.append((time.process_time() - began) / STEPS)
    torch.set_num_threads(threads)
    each = statistics.median(added) / len(plan)
    step = statistics.median(steps)
    return {
        "microseconds a step": each * 1e6,
        "milliseconds a step of the encoder": step * 1e3,
        "share of it, in per cent (goal 1)": 100 * each / step,
    }


class _Training:
    def __init__(self) -> None:
        self.model = Encoder()
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def step(self, batch: dict[str, Tensor]) -> None:
        x, y = self.model(batch["x"]), self.model(batch["y"])
        loss = cross_entropy(x @ y.T / TEMPERATURE, torch.arange(len(x)))
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()


def _seconds(loader: Iterable[object]) -> float:
    """Of a core, for a pass."""
    began = time.process_time()
    for _ in loader:
        pass
    return time.process_time() - began
