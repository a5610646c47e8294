"""Texts as rows of token numbers: words, the pieces of identifiers and parts of those, hashed."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

import torch

BUCKETS = 1 << 15  # rows of an embedding table; number 0 fills rows up
_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")  # of snake_case and camelCase


def tokens(texts: Iterable[str], length: int) -> torch.Tensor:
    """The first `length` distinct tokens of each text, as numbers below `BUCKETS`."""
    rows = []
    for text in texts:
        found: dict[int, None] = {}  # a set that keeps its order
        for piece in _PIECE.findall(text):
            word = piece.lower()
            for part in (word, *_parts(word)):
                found[1 + zlib.crc32(part.encode()) % (BUCKETS - 1)] = None
        rows.append(torch.tensor(list(found)[:length]))
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).long()


def _parts(word: str) -> Iterable[str]:
    """Runs of four characters, so that plurals and abbreviations meet their words."""
    return (f"{word[i : i + 4]}~" for i in range(len(word) - 3)) if len(word) > 4 else ()
