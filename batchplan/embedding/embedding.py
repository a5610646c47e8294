"""Embeds the texts of a data set with a model, and writes shards of a few thousand rows."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from batchplan.data.arrow_types import encoded
from batchplan.data.ids import ids_digest
from batchplan.data.records import Source
from batchplan.embedding.options import EmbedOptions
from batchplan.embedding.table import TokenTable, token_table
from batchplan.errors import InputError
from batchplan.files.atomic import remove, write_files
from batchplan.files.folders import staged_folder
from batchplan.files.inputs import PathLike, listed
from batchplan.files.saved_data import EMBEDDED, embedded_facts
from batchplan.keywords import EmbedKeywords
from batchplan.options import with_options
from batchplan.plans.output import check_folder
from batchplan.runtime import Observer, Runtime

NAME = EMBEDDED
_CUT = 300  # characters of a text that is written
_BATCHES_AT_ONCE = 64  # batches of the model between two steps of the progress
_WRITE = partial(pq.write_table, compression="none", use_dictionary=False)
_Advance = Callable[[int], None]
_Vectors = NDArray[np.float16]


class Encoder(Protocol):
    """A model that embeds texts, such as `batchplan.embedding.SentenceEncoder`.

    Attributes:
        facts: JSON values that describe the model. An interrupted run goes on only if they are the
            same.
    """

    facts: dict[str, Any]

    def encode(self, texts: list[str], column: int) -> NDArray[np.float32]:
        """The vectors of the texts (n, d) of a column, counted from 0."""


@dataclass(frozen=True)
class Embedded:
    """A summary of a written folder.

    Attributes:
        facts: the content of its ``_embedding.json``.
        dim: d.
        shards: number of files.
        kept: number of files that an earlier run had written.
    """

    facts: dict[str, Any]
    dim: int
    shards: int
    kept: int


@with_options(EmbedOptions)
def embed(
    encoder: Encoder | str,
    data: PathLike | Sequence[PathLike],
    output: PathLike,
    *,
    force: bool = False,
    reuse: bool = False,
    device: str = "auto",
    observer: Observer | None = None,
    **options: Unpack[EmbedKeywords],
) -> Embedded:
    """Embed the texts of a data set as a folder of Parquet shards, which planners read.

    Row i of all shards, in order of their names, is row i of the data: a list of float16 for each
    column of texts (mined negatives are named ``negative_1`` and so on), and ``id`` if the data
    has ids. The folder appears when it is complete. Until then, shards are in ``OUTPUT.partial``,
    where the next run with the same model, data and options goes on.

    Args:
        encoder: the model: a folder of sentence-transformers, a name on the Hugging Face Hub, or
            your own.
        data: files, folders or globs of Parquet, JSON lines or Arrow, or folders that `datasets`
            saved.
        output: the folder to write.
        force: replace an existing folder of this function, and begin again if an interrupted run
            had another model, data or options.
        reuse: keep an existing folder with the same model, data and options instead of refusing it.
        device, observer: see `Runtime`. Your own encoder has its own device.
        options: fields of `EmbedOptions`: the columns, and how to cut shards.

    Raises:
        InputError: the data cannot be read, a column is missing or holds no text, ids are not
            unique, the encoder returns no vector for each text, vectors do not fit into float16,
            the output cannot be used, or an interrupted run had other facts.
        ResourceError: there is no such device.
        OutputError: a file could not be written. Finished shards are kept.
    """
    settings, runtime = EmbedOptions(**options), Runtime(device, observer=observer)
    paths, path = listed(data), Path(output)
    model = [encoder] if isinstance(encoder, str) and os.path.isdir(encoder) else []
    check_folder(path, NAME, force=force or reuse, inputs=[*paths, *model])
    used: Any = _loaded(encoder, settings, runtime) if isinstance(encoder, str) else encoder
    with runtime.stage("scan"):
        source = Source.of(paths, runtime, settings.names, settings.shard_order)
        _require_text(source)
        name, ids = source.ids(settings.id_column) or (None, None)
        facts = {
            **used.facts, "data": _digest(source), "rows": source.num_rows,
            "columns": settings.names, "id_column": name, "normalize": settings.normalize,
            "batch_size": settings.batch_size, "shard_rows": settings.shard_rows,
        }  # fmt: skip
        if ids is not None:
            if "id" in settings.written:
                raise InputError(
                    "columns: got 'id', as which the row ids are written; rename the column, or "
                    "write no ids with --id-column ''"
                )
            facts["ids"] = f"{ids.type} {ids_digest(ids)}"
        if settings.keep_texts:
            facts["texts"] = _CUT
        if source.order:  # of the data of plans for these embeddings
            facts["shard_order"] = source.order
    if reuse and (path / NAME).exists():
        shards = sorted(path.glob("shard-*.parquet"))
        whole = len(shards) == -(-source.num_rows // settings.shard_rows)
        if whole and embedded_facts(path) == facts:
            return Embedded(facts, _dim(shards[0], settings), len(shards), len(shards))
        check_folder(path, NAME, force=force, inputs=paths)
    tokens = _tokenized(used, source, runtime) if settings.table else None
    kept, width = 0, len(settings.names)
    with (
        staged_folder(path, keep=True) as folder,
        runtime.stage("embed", source.num_rows * width) as advance,
    ):
        _claim(folder, facts, force or reuse)
        for number, table in enumerate(_cut(_coded(source), settings.shard_rows)):
            shard, first = folder / f"shard-{number:06d}.parquet", number * settings.shard_rows
            if shard.exists():  # shards are replaced atomically, so that it is whole
                kept += 1
                advance(len(table) * width)
                continue
            columns = {} if ids is None else {"id": ids.slice(first, len(table))}
            if tokens is None:
                sides = _by_model(used, table, settings.batch_size, advance)
            else:
                sides = _by_tokens(tokens, first, len(table), advance)
            for vectors, texts, written in zip(sides, table, settings.written, strict=True):
                _require_finite(vectors, source, first)
                columns[written] = pa.FixedSizeListArray.from_arrays(
                    pa.array(vectors.ravel()), vectors.shape[1]
                )
                if settings.keep_texts:
                    plain = texts.cast(pa.large_string())
                    columns[f"{written}_text"] = pc.utf8_slice_codeunits(plain, 0, _CUT)
            write_files({shard: partial(_WRITE, pa.table(columns))})
        dim = _dim(shard, settings)
    return Embedded(facts, dim, number + 1, kept)


def _loaded(name: str, settings: EmbedOptions, runtime: Runtime) -> Any:
    """Load a model of sentence-transformers, or its token vectors alone."""
    with runtime.stage("load"):
        if settings.table:
            from batchplan.embedding.tokens import ModelTable

            return ModelTable.read(name)
        from batchplan.embedding.encoder import SentenceEncoder

        return SentenceEncoder(name, settings, runtime)


def _tokenized(model: Any, source: Source, runtime: Runtime) -> TokenTable:
    """Return the token table of all texts."""
    columns = range(len(source.schema))
    with runtime.stage("tokenize", source.num_rows * len(columns)) as done:

        def side(column: int) -> Iterator[list[str]]:
            for batch in source.batches():
                yield batch[column].to_pylist()
                done(len(batch))

        return token_table(model, [side(column) for column in columns])


def _dim(shard: Path, settings: EmbedOptions) -> int:
    """Return the number of dimensions of a shard that was written."""
    try:
        return int(pq.read_schema(shard).field(settings.written[0]).type.list_size)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{shard}: is damaged ({error!s:.200}); remove it") from error


def _claim(folder: Path, facts: dict[str, Any], force: bool) -> None:
    """Begin in an empty folder, or go on in one with the same facts."""
    path, before, names = folder / NAME, {}, list(facts)
    if path.exists():
        before = embedded_facts(folder)
        names = [name for name in {**facts, **before} if before.get(name) != facts.get(name)]
        if names and not force:
            raise InputError(
                f"{folder}: was begun with {names[0]} {before.get(names[0])!s:.80}, now it is "
                f"{facts.get(names[0])!s:.80}; run as before to go on, or pass --force to begin "
                "again"
            )
    for old in folder.glob("shard-*") if names else ():
        remove(old)
    write_files({path: json.dumps(facts, indent=2).encode() + b"\n"})


def _by_tokens(tokens: TokenTable, first: int, rows: int, advance: _Advance) -> Iterator[_Vectors]:
    """Yield the vectors (n, d) of each column, from token vectors."""
    for vectors in tokens.embed(np.arange(first, first + rows)):
        advance(rows)
        yield vectors


def _by_model(
    encoder: Encoder, table: pa.Table, batch_size: int, advance: _Advance
) -> Iterator[_Vectors]:
    """Yield the vectors (n, d) of each column. Equal texts are embedded once. Long ones come first,
    so that the texts of a batch have similar lengths."""
    at_once = batch_size * _BATCHES_AT_ONCE
    for column, texts in enumerate(table):
        coded = encoded(texts.unify_dictionaries().combine_chunks(), pa.large_string())
        codes = coded.indices.to_numpy()
        counts = np.bincount(codes)
        order = np.argsort(-pc.binary_length(coded.dictionary).to_numpy(), kind="stable")
        vectors: list[_Vectors] = []
        for start in range(0, len(order), at_once):
            some = order[start : start + at_once]
            found = encoder.encode(coded.dictionary.take(pa.array(some)).to_pylist(), column)
            with np.errstate(over="ignore"):
                own = np.asarray(found).astype(np.float16)
            dim = vectors[0].shape[1] if vectors else max(own.shape[1:2], default=0)
            if own.shape != (len(some), dim) or not dim:
                raise InputError(
                    f"encoder: returned {own.shape} for {len(some)} texts, expected "
                    f"({len(some)}, {dim if vectors else 'd'}), a vector for each text in turn"
                )
            vectors.append(own)
            advance(int(counts[some].sum()))
        yield np.concatenate(vectors)[np.argsort(order)[codes]]


def _require_finite(vectors: _Vectors, source: Source, first: int) -> None:
    wrong = np.flatnonzero(~np.isfinite(vectors).all(1))
    if wrong.size:
        raise InputError(
            f"{source.place(first + int(wrong[0]))}: the model gives it a vector with NaN or "
            f"values beyond 65504, the largest float16, as {wrong.size} rows of its shard; run "
            "batchplan embed with --normalize and without --table, or take another model"
        )


def _require_text(source: Source) -> None:
    for field in source.schema:
        if not (pa.types.is_string(field.type) or pa.types.is_large_string(field.type)):
            raise InputError(
                f"{source.paths[0]}: column {field.name!r} is {field.type}, expected texts; name a "
                "column of strings with --columns"
            )


def _digest(source: Source) -> str:
    """Return a digest of all texts. It does not depend on how they are cut into batches."""
    digest, row = hashlib.blake2b(digest_size=16), 0
    for batch in source.batches():
        for name, column in zip(source.schema.names, batch, strict=True):
            if column.null_count:
                first = pc.index(column.is_null(), True).as_py()
                raise InputError(
                    f"{source.place(row + first)}: column {name!r} is null, expected a text; drop "
                    "the row"
                )
        columns = (column.cast(pa.large_binary()).to_pylist() for column in batch)
        digest.update("".join(map(repr, zip(*columns, strict=True))).encode())
        row += len(batch)
    return f"b2:{digest.hexdigest()}"


def _coded(source: Source) -> Iterator[pa.RecordBatch]:
    """Yield the texts as dictionaries, since a small file may have a long one many times."""
    for piece in source.pieces():
        columns = [encoded(column, pa.large_string()) for column in piece.columns]
        yield pa.RecordBatch.from_arrays(columns, source.schema.names)


def _cut(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Cut rows into tables of ``rows`` rows. The last may have fewer."""
    held: list[pa.RecordBatch] = []
    missing = rows
    for batch in batches:
        while len(batch):
            part = batch.slice(0, missing)
            batch = batch.slice(len(part))
            held.append(part)
            missing -= len(part)
            if not missing:
                yield pa.Table.from_batches(held)
                held, missing = [], rows
    if held:
        yield pa.Table.from_batches(held)
