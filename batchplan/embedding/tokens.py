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
_OTHER_TOKENS = "do_lower_case", "tokenizer_args", "processor_kwargs"  # than tokenizer.json says


@dataclass(frozen=True, eq=False)
class ModelTable:
    """The tokenizer of a model, and the vectors of its tokens.

    Attributes:
        tokenizer: of the library tokenizers, or of transformers.
        token_vectors: float32 (V, d).
        facts: JSON values that say which model it is.
        max_seq_length: number of tokens that the model reads of a text; None for all.
    """

    tokenizer: Any
    token_vectors: NDArray[Any]
    facts: dict[str, Any]
    max_seq_length: int | None = None

    @classmethod
    def read(cls, name: str) -> ModelTable:
        """Read the table of a model by its folder, or by its name on the Hugging Face Hub.

        Only ``tokenizer.json``, one tensor of the safetensors and the length of texts are read. A
        model without these is loaded as a whole.

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
            found = model.tokenizer, table_of(model), model.max_seq_length
        tokenizer, vectors, longest = found
        digest = hashlib.blake2b(vectors.tobytes(), digest_size=16)
        digest.update(f"{description(tokenizer)} {longest}".encode())
        facts = {"model": name, "table": f"b2:{digest.hexdigest()}"}
        return cls(tokenizer, vectors, facts, longest)


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


def _read(name: str) -> tuple[Any, NDArray[np.float32], int | None] | None:
    """Return tokenizer, vectors and `max_seq_length` from the files of a model; None if they are in
    other formats."""
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
        if modules.exists():
            folder /= parse_json(modules.read_bytes())[0]["path"]
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        longest = None
        if (folder / "config.json").exists():  # else the tokenizer itself cuts texts
            longest = _longest(folder)
            tokenizer.no_truncation()
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(str(path), "pt") as file:
                for key in filter(_TABLE.search, file.keys()):
                    shape = file.get_slice(key).get_shape()
                    if len(shape) == 2 and shape[0] >= tokenizer.get_vocab_size():
                        return tokenizer, file.get_tensor(key).float().numpy(), longest
    # Errors of the Hub, of Rust and of damaged files: the whole model says what is wrong.
    except Exception:
        return None
    return None


def _longest(folder: Path) -> int | None:
    """Return the `max_seq_length` that sentence-transformers gives a Transformer.

    Raises:
        ValueError: it has other tokens than ``tokenizer.json`` says.
    """
    wanted, own, model = (
        parse_json(path.read_bytes()) if (path := next(folder.glob(name), None)) else {}
        for name in ("sentence_*_config.json", "tokenizer_config.json", "config.json")
    )
    if any(map(wanted.get, _OTHER_TOKENS)):
        raise ValueError
    limits = own.get("model_max_length"), model.get("max_position_embeddings")
    known = [limit for limit in limits if limit and limit > 0]  # -1 is none
    return wanted.get("max_seq_length") or min(known, default=None)
