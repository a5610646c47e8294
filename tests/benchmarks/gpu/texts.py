"""``python -m tests.benchmarks.gpu.texts FOLDER``: the weights of MiniLM-L6 as float16, and the
tokens of real pairs, for a machine that has neither the texts nor sentence-transformers.

About 50 MB. 10,240 pairs are those of the domain *gloss* (`tests.benchmarks.finetune`), 100,000
those of all three domains.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.benchmarks.finetune.domains import COLUMNS, DOMAINS, Split, load, pairs, split
from tests.benchmarks.finetune.encoders import TOKENS, minilm
from tests.benchmarks.gpu.training import WEIGHTS

SMALL, LARGE = 10_240, 100_000


def write_weights(folder: Path, bert: Any) -> None:
    """Save the weights of a BertModel as float16, but for its pooler."""
    arrays = {
        name: value.detach().half().numpy()
        for name, value in bert.state_dict().items()
        if value.is_floating_point() and not name.startswith("pooler")
    }
    np.savez(folder / WEIGHTS, heads=bert.config.num_attention_heads, **arrays)


def write_tokens(path: Path, data: Split, tokens: Callable[[list[str]], Any]) -> None:
    """Save the token numbers of pairs: uint16 (n, length) each, 0 for padding."""
    arrays = {
        f"{part}_{name}": np.asarray(tokens(table[name].to_pylist())).astype(np.uint16)
        for part, table in (("train", data.train), ("test", data.test))
        for name in COLUMNS
    }
    np.savez_compressed(path, **arrays)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    model = minilm()
    write_weights(folder, model[0].auto_model)

    def tokens(texts: list[str]) -> Any:
        options = {"truncation": True, "max_length": TOKENS, "padding": "max_length"}
        return model.tokenizer(texts, **options)["input_ids"]

    write_tokens(folder / f"{SMALL}.npz", load("gloss", SMALL), tokens)
    write_tokens(folder / f"{LARGE}.npz", split(_joined(), LARGE), tokens)


def _joined() -> pa.Table:
    """The pairs of all domains in a random order."""
    joined = pa.concat_tables(list(map(pairs, DOMAINS)))
    return joined.take(np.random.default_rng(0).permutation(len(joined)))


if __name__ == "__main__":
    main()
