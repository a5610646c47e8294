"""Reads the tokenizer and the token vectors of a model without its other weights."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from batchplan.data.arrow_types import plain
from batchplan.data.embeddings import Embeddings
from batchplan.data.memory import is_transformed
from batchplan.data.texts import paired_columns, strings_of
from batchplan.embedding.hub import located
from batchplan.embedding.table import description, has_table, table_of, token_table
from batchplan.errors import InputError
from batchplan.extras import missing_told
from batchplan.files.documents import parse_json

_TABLE = re.compile(r"(?<!position_)(?<!type_)(embed\w*|wte|shared)\.weight$|^embeddings?$")
_AT_ONCE = 1 << 14  # texts


@dataclass(frozen=True, eq=False)
class ModelTable:
    """The tokenizer of a model, and the vectors of its tokens.

    Attributes:
        tokenizer: of the library tokenizers, or of transformers.
        token_vectors: float32 (V, d).
        facts: JSON values that say which model it is.
    """

    tokenizer: Any
    token_vectors: NDArray[Any]
    facts: dict[str, Any]

    @classmethod
    def read(cls, name: str) -> ModelTable:
        """Read the table of a model by its folder, or by its name on the Hugging Face Hub.

        Only ``tokenizer.json`` and one tensor of the safetensors are read. A model without these is
        loaded as a whole.

        Raises:
            InputError: there is no such model, or it has no table of token vectors.
        """
        if (found := _read(name)) is None:
            from batchplan.embedding.encoder import load_model

            model = load_model(name, "cpu")
            if not has_table(model):
                raise InputError(
                    f"{name}: has no table of token vectors; embed the texts with the whole model "
                    "(--embed)"
                )
            found = model.tokenizer, table_of(model)
        tokenizer, vectors = found
        digest = hashlib.blake2b(vectors.tobytes(), digest_size=16)
        digest.update(description(tokenizer).encode())
        return cls(tokenizer, vectors, {"model": name, "table": f"b2:{digest.hexdigest()}"})


def token_embeddings(model: Any, dataset: Any) -> Embeddings:
    """Embed a table of texts by the token vectors of a model, without a pass of the model.

    Takes seconds and no GPU. The vectors are weighted means; see `TokenTable`. They are good enough
    for the plan of a first epoch.

    Args:
        model: a SentenceTransformer, or another module of torch with a ``tokenizer``; or a folder,
            or a name on the Hugging Face Hub, of which only tokenizer and table are loaded.
        dataset: a datasets.Dataset, a pyarrow.Table, or another table with ``__arrow_c_stream__``.
            The columns ``anchor`` and ``positive`` are embedded, or the first two columns of
            strings, and mined negatives: ``negative``, or ``negative_1`` and so on.

    Raises:
        InputError: there is no column of texts, a text is null, or the model has no token vectors.
    """
    if hasattr(dataset, "with_format"):  # of datasets
        transformed = is_transformed(dataset)
        dataset = pa.table(dataset[:]) if transformed else dataset.with_format("arrow")[:]
    if not (isinstance(dataset, pa.Table) or hasattr(dataset, "__arrow_c_stream__")):
        raise InputError(
            f"x: got a {type(dataset).__name__} with a model, expected a table of texts: a "
            "datasets.Dataset or a pyarrow.Table"
        )
    table = pa.table(dataset)
    columns = paired_columns(strings_of(table.schema))
    if not columns:
        raise InputError(
            f"x: got the columns {', '.join(table.schema.names)}, expected texts; name them anchor "
            "and positive"
        )
    for name in columns:
        if nulls := plain(table[name]).cast(pa.large_string()).null_count:  # also in a dictionary
            raise InputError(f"x: column {name!r} has {nulls} rows without text; drop them")
    model = ModelTable.read(model) if isinstance(model, str) else model
    if not has_table(model):
        raise InputError(
            f"model: got a {type(model).__name__}, expected a model with a tokenizer and a table "
            "of token vectors; embed the texts with it, and pass both sides as arrays"
        )
    found = token_table(model, [_parts(table[name]) for name in columns])
    x, *others = found.embed(np.arange(len(table)))
    return Embeddings.from_arrays(x, *others[:1], negatives=others[1:] or None)


def _parts(column: pa.ChunkedArray) -> Iterator[list[str]]:
    for start in range(0, len(column), _AT_ONCE):
        yield column.slice(start, _AT_ONCE).to_pylist()


def _read(name: str) -> tuple[Any, NDArray[np.float32]] | None:
    """Return tokenizer and vectors from the files of a model; None if they are in other formats."""
    with missing_told():
        from tokenizers import Tokenizer  # isort: skip
        from huggingface_hub import snapshot_download
        from safetensors import safe_open

        found = located(name)
    try:
        if not os.path.isdir(found):
            found = snapshot_download(found, allow_patterns=["*.json", "*.safetensors"])
        folder = Path(found)
        modules = folder / "modules.json"
        first = parse_json(modules.read_bytes())[0]["path"] if modules.exists() else ""
        tokenizer = Tokenizer.from_file(str(folder / first / "tokenizer.json"))
        for path in sorted((folder / first).glob("*.safetensors")):
            with safe_open(str(path), "pt") as file:
                for key in filter(_TABLE.search, file.keys()):
                    shape = file.get_slice(key).get_shape()
                    if len(shape) == 2 and shape[0] >= tokenizer.get_vocab_size():
                        return tokenizer, file.get_tensor(key).float().numpy()
    # Errors of the Hub, of Rust and of damaged files: the whole model says what is wrong.
    except Exception:
        return None
    return None
