"""``python -m tests.benchmarks.finetune.neighbours``: the share of a model's own nearest positives
that cheap vectors find.

For each kind of vectors and each domain, the 16 nearest positives of each anchor of the second half
of the rows, in this half and without its own, by the model before training (``before``) and after
an epoch of shuffled batches (``after``). Vectors of `VECTORS` are of the model before training.
Those of `PREDICTORS` are fitted to the vectors that the model gives the first half.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from tests.benchmarks.finetune.domains import COLUMNS, load
from tests.benchmarks.finetune.encoders import ENCODERS, autocast
from tests.benchmarks.finetune.runs import train
from tests.benchmarks.finetune.table import NEIGHBOURS
from tests.benchmarks.finetune.vectors import PREDICTORS, VECTORS, Arrays, Sides

NEAREST = 16
RATES = {"translation": 4e-4, "gloss": 5e-5, "code": 5e-5}  # of shuffled batches


def share_found(true: Arrays, cheap: Arrays) -> float:
    """The mean share of the nearest positives of each anchor that other vectors find."""
    ours, theirs = nearest(*true), nearest(*cheap)
    return float(np.mean([np.isin(*both).mean() for both in zip(ours, theirs, strict=True)]))


def nearest(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """The rows of the nearest positives of each anchor by cosine similarity, (n, 16), without its
    own."""
    x, y = (side / np.linalg.norm(side.astype(np.float32), axis=1)[:, None] for side in (x, y))
    scores = x @ y.T
    np.fill_diagonal(scores, -np.inf)
    return np.argpartition(-scores, NEAREST, axis=1)[:, :NEAREST]


def trained(domain: str, model: str, rows: int) -> SentenceTransformer:
    """The encoder after an epoch of shuffled batches."""
    encoder = ENCODERS[model]()
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "weights.pt"
        train(domain, model, "shuffled", RATES[domain], 1, rows, 1, save=weights)
        encoder.load_state_dict(torch.load(weights))
    return encoder


def shares(encoders: dict[str, SentenceTransformer], sides: Sides) -> Iterator[dict[str, Any]]:
    """Yield the shares of each kind of vectors."""
    first, second = np.split(np.arange(len(sides[0])), 2)
    own = {name: VECTORS["pass"](encoder, sides) for name, encoder in encoders.items()}
    true = {name: [side[second] for side in vectors] for name, vectors in own.items()}
    for kind, make in VECTORS.items():
        made = own["before"] if kind == "pass" else make(encoders["before"], sides)
        cheap = [side[second] for side in made]
        yield {"vectors": kind, **{name: share_found(true[name], cheap) for name in encoders}}
    for kind, fitted in PREDICTORS.items():
        found = {
            name: share_found(true[name], fitted(encoder, sides).predict(first, own[name], second))
            for name, encoder in encoders.items()
        }
        yield {"vectors": f"predicted by {kind}", **found}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.finetune.neighbours", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--domains", nargs="+", choices=RATES, default=list(RATES))
    parser.add_argument("--model", default="minilm", help="minilm, weak or scratch")
    parser.add_argument("--rows", type=int, default=10_240, help="pairs to train on")
    parser.add_argument("--results", type=Path, default=NEIGHBOURS)
    options = parser.parse_args()
    for domain in options.domains:
        found = load(domain, options.rows).train
        encoders = {
            "before": ENCODERS[options.model](),
            "after": trained(domain, options.model, options.rows),
        }
        with autocast():  # as plans are made
            for share in shares(encoders, [found[name].to_pylist() for name in COLUMNS]):
                line = {"domain": domain, **share}
                with options.results.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(line, flush=True)


if __name__ == "__main__":
    main()
