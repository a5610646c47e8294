"""Planned epochs in a SentenceTransformerTrainer, in three lines.

plans = PlannedEpochs("plans", train_dataset, loss)
args = SentenceTransformerTrainingArguments("run", batch_sampler=plans)
trainer = SentenceTransformerTrainer(model, args, train_dataset, loss=loss, callbacks=[plans])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sized
from dataclasses import fields
from hashlib import blake2b
from math import isclose
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainingArguments,
    SparseEncoder,
)
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.util import cos_sim, dot_score
from torch import Generator, Tensor, cat, cuda
from torch.utils.data import RandomSampler

from batchplan.errors import InputError
from batchplan.files.atomic import write_files
from batchplan.planners import PLANNERS
from batchplan.plans.validation import Int64Array
from batchplan.training import transformers
from batchplan.training.sampler import PlanBatchSampler, asked_for_training

Result = TypeVar("Result")

_LABELS = ("label", "labels", "score", "scores", "dataset_name")  # columns that are no texts
_COLUMN = "batchplan_texts"  # of the groups of rows that share a text
_TEXTS_AT_ONCE = 1 << 14  # that are compared
_AT_ONCE, _MOST_AT_ONCE = 128, 4096  # texts per batch when rows are embedded
_SAMPLE = 64  # rows by which a data set is known


class PlannedEpochs(transformers.PlannedEpochs):
    """What plans each epoch from the model as it is then, and the batches of the plans.

    Embeds the first two columns of text, those of the anchor and its positive, with the prompts of
    the training. A planner with a guard keeps rows with equal texts apart: those of a column share
    a vector, to the last bit, and rows that share a text across the columns are a group, see
    `shared_texts`. Other data sets, such as that of an
    evaluation, get random batches as usual.

    Args:
        folder: where the plans are saved, a new one for each run; see `EpochPlans`.
        dataset: a datasets.Dataset, the one that the trainer gets.
        loss: the loss of the training, which says the temperature, the similarity, and whether
            vectors of all devices are gathered.
        planner: a name in `batchplan.planners.PLANNERS`.
        embed_batch_size: texts per batch when rows are embedded. None: 128; on a GPU it doubles
            from there with each call, until the memory has no room for more.
        options: those of `batchplan.training.transformers.PlannedEpochs` and of the planner. With
            a ``group_column``, its groups alone are kept apart, and equal vectors.

    Raises:
        InputError: as there; and options that contradict the loss, or a gathering loss whose
            devices would get unequal parts.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        dataset: Any,
        loss: Any,
        planner: str = "partition",
        *,
        embed_batch_size: int | None = None,
        **options: Any,
    ) -> None:
        if isinstance(dataset, dict):
            raise InputError(
                "data set: got a dictionary of data sets, expected one; join them with "
                "datasets.concatenate_datasets, and plan with source_column to keep them in "
                "batches of their own"
            )
        super().__init__(folder, dataset, self._texts, planner, **options)
        if not hasattr(dataset, "column_names"):
            raise InputError(
                f"data set: got a {type(dataset).__name__}, expected a datasets.Dataset"
            )
        self.loss = loss
        self.embed_batch_size = embed_batch_size
        self._size = BatchSize(embed_batch_size or _AT_ONCE)
        self._planner = planner
        self._arguments: Any = None
        self._outputs: list[Tensor] = []  # of this step, one after the other
        self._own_table: str | None = options.get("label_table")
        self._groups: Path | None = None
        if "group_column" in _fields(planner) and options.get("group_column") is None:
            self._groups = Path(folder) / "texts.parquet"
            self.options |= {"group_column": _COLUMN, "label_table": str(self._groups)}

    def __getstate__(self) -> dict[str, Any]:
        """What checkpoints hold of it: neither the model nor the data."""
        return {**super().__getstate__(), "loss": None, "_arguments": None, "_outputs": []}

    def __call__(
        self, dataset: Sized, batch_size: int, *others: Any, **named: Any
    ) -> PlanBatchSampler | DefaultBatchSampler:
        """The batches of the plans for the training; random batches for an evaluation.

        Raises:
            InputError: the trainer trains on another data set; or as `batches`.
        """
        asked = asked_for_training()
        if asked is not False and self._is_planned(dataset):
            return self.batches(dataset, batch_size)
        if asked:
            raise InputError(
                "data set: the trainer trains on another one than the plans got, or on several; "
                "pass PlannedEpochs the Dataset that the trainer gets, and join several with "
                "datasets.concatenate_datasets"
            )
        return random_batches(dataset, batch_size, *others, **named)

    def data_digest(self) -> str:
        """Of the texts of some rows."""
        rows = self.dataset[range(0, len(self.dataset), len(self.dataset) // _SAMPLE + 1)]
        texts = repr([rows[name] for name in self._columns()])
        return blake2b(texts.encode(errors="backslashreplace"), digest_size=16).hexdigest()

    def settings(self, args: SentenceTransformerTrainingArguments) -> dict[str, Any]:
        """Temperature, similarity and scope, as the loss has them."""
        if getattr(args, "batch_sampler", None) is not self:
            raise InputError(
                "batch_sampler: the training arguments hold another one; pass batch_sampler=plans"
            )
        self._arguments = args
        if self.embed_batch_size is None and args.device.type == "cuda":
            self._size = BatchSize(_AT_ONCE, _MOST_AT_ONCE)
        known = _fields(self._planner)
        settled = {name: value for name, value in loss_settings(self.loss).items() if name in known}
        if args.world_size == 1:
            settled["scope"] = self.options.get("scope", "device")
        for name, value in settled.items():
            got = self.options.get(name, value)
            same = isclose(got, value) if isinstance(value, float) else got == value
            if not same:
                raise InputError(
                    f"{name}: got {got} for the plan, but the loss has {value}; leave it out, or "
                    "change the loss (its temperature is 1 / scale, its scope is global if "
                    "gather_across_devices is True)"
                )
        return settled

    def on_init_end(self, *events: Any, **others: Any) -> None:
        """Check the model, the arguments and the loss, and prepare to plan."""
        model = others.get("model")
        if isinstance(model, SparseEncoder) or not isinstance(model, SentenceTransformer):
            raise InputError(
                f"model: got a {type(model).__name__}, whose vectors this adapter cannot plan; use "
                "PlannedBatches and PlannedEpochs of batchplan.training.transformers, and pass a "
                "function that embeds with a SentenceTransformer (docs/frameworks.md)"
            )
        super().on_init_end(*events, **others)
        if self._series["embeddings"] == "training":
            # The last module and not the model: losses may replace the forward method of that.
            model[-1].register_forward_hook(self._keep_output)
        batching, sizes = self.plans.batching, self.plans.batch_sizes()
        if batching.scope == "global" and sizes is not None and (sizes % batching.world_size).any():
            raise InputError(
                f"tail: got {batching.tail}, but the last {sizes[-1]} rows fall into unequal parts "
                f"for {batching.world_size} devices, which gather_across_devices cannot join; pass "
                "tail='drop' or tail='pad'"
            )

    def on_substep_end(self, *events: Any, **others: Any) -> None:
        """Record the vectors of the step, and count it."""
        self._record_outputs()
        super().on_substep_end(*events, **others)

    def on_step_end(self, *events: Any, **others: Any) -> None:
        """Record the vectors of the step, and count it."""
        self._record_outputs()
        super().on_step_end(*events, **others)

    def _keep_output(self, module: Any, _inputs: Any, output: Any) -> None:
        if module.training:
            self._outputs.append(output["sentence_embedding"].detach())

    def _record_outputs(self) -> None:
        """Record the first vectors of the step: those of the anchors, then those of the positives.
        What follows are other columns, or the same texts again: cached losses compute their vectors
        a second time, in parts."""
        if not self._outputs:
            return
        (outputs, self._outputs), size = (self._outputs, []), len(self._rows())
        vectors = cat(outputs)
        sides = [vectors[side * size :][:size] for side in range(len(self._columns()))]
        self.record(*sides)

    def _is_planned(self, dataset: Any) -> bool:
        mark = getattr(self.dataset, "_fingerprint", None)
        same = mark is not None and getattr(dataset, "_fingerprint", None) == mark
        return dataset is self.dataset or same

    def _columns(self) -> list[str]:
        return [name for name in self.dataset.column_names if name not in _LABELS][:2]

    def _texts(self, rows: Int64Array) -> list[Any]:
        """The vectors of the first two columns of text, or of the only one."""
        texts = self.dataset[rows.tolist()]
        return [self._side(name, _strings(texts[name], name)) for name in self._columns()]

    def same_vectors(self) -> list[Int64Array]:
        """Of each column, the first row with an equal text; also write the groups of rows that
        share a text across the columns."""
        columns = self._columns()
        parts: dict[str, list[pa.Array]] = {name: [] for name in columns}
        for start in range(0, len(self.dataset), _TEXTS_AT_ONCE):
            rows = self.dataset[start : start + _TEXTS_AT_ONCE]
            for name in columns:
                parts[name].append(_strings(rows[name], name))
        texts = pa.chunked_array([part for name in columns for part in parts[name]])
        coded = texts.combine_chunks().dictionary_encode()
        codes = coded.indices.to_numpy().astype(np.int64).reshape(len(columns), -1)
        if self._groups is not None:
            self._write_groups(self._groups, codes)
        first = [np.unique(side, return_index=True, return_inverse=True)[1:] for side in codes]
        return [rows[places].astype(np.int64) for rows, places in first]

    def _write_groups(self, path: Path, codes: Int64Array) -> None:
        """The table that the planner reads groups from, with the columns of the user's own."""
        groups = shared_texts(codes, codes.shape[1] // self.plans.batching.batch_size)
        table = pa.table({_COLUMN: pa.array(groups, mask=groups < 0)})
        if self._own_table is not None:
            own = pq.read_table(self._own_table)
            if len(own) != len(groups):
                raise InputError(
                    f"{self._own_table}: has {len(own)} rows, expected {len(groups)}, one for each "
                    "row of the data set"
                )
            table = own.append_column(_COLUMN, table[_COLUMN])
        write_files({path: lambda stream: pq.write_table(table, stream)})

    def _side(self, name: str, texts: pa.Array) -> Any:
        """(n, d), of unit length under cosine."""
        asked = {"prompt": self._prompt(name)}
        if task := (self._arguments.router_mapping or {}).get(name):
            asked["task"] = task
        arguments = self._arguments
        return self._size.fitted(
            lambda size: self._model.encode(
                texts.to_pylist(),
                batch_size=size,
                normalize_embeddings=self._similarity() == "cosine",
                show_progress_bar=arguments.process_index == 0 and not arguments.disable_tqdm,
                **asked,
            )
        )

    def _similarity(self) -> str:
        chosen = {**loss_settings(self.loss), **self.options}
        return str(chosen.get("similarity", "cosine"))

    def _prompt(self, column: str) -> str:
        prompts = self._arguments.prompts or ""
        if isinstance(prompts, str):
            return prompts
        if any(isinstance(prompt, dict) for prompt in prompts.values()):
            raise InputError(
                "prompts: got those of several data sets, but plans are made for one; map column "
                "names to prompts"
            )
        return str(prompts.get(column, ""))  # "" and not None: the training adds no default prompt


class BatchSize:
    """Texts per batch, doubled after each call, and halved for good when memory is short.

    Args:
        size: of the first batches, and the smallest.
        most: of the largest batches; None for ``size``.
    """

    def __init__(self, size: int, most: int | None = None) -> None:
        self._size = self._least = size
        self._most = most or size

    def fitted(self, work: Callable[[int], Result]) -> Result:
        """The result of ``work(size)``, called again with half the size when a GPU lacks memory.

        Raises:
            torch.OutOfMemoryError: there is no room for the smallest batches.
        """
        while True:
            try:
                result = work(self._size)
            except cuda.OutOfMemoryError:
                if self._size <= self._least:
                    raise
                self._size = self._most = max(self._least, self._size // 2)
                cuda.empty_cache()
            else:
                self._size = min(2 * self._size, self._most)
                return result


def random_batches(
    dataset: Any,
    batch_size: int,
    drop_last: bool = False,
    valid_label_columns: list[str] | None = None,
    generator: Generator | None = None,
    seed: int = 0,
) -> DefaultBatchSampler:
    """The batches that a SentenceTransformerTrainer makes without a plan."""
    return DefaultBatchSampler(
        RandomSampler(dataset, generator=generator),
        batch_size=batch_size,
        drop_last=drop_last,
        valid_label_columns=valid_label_columns,
        generator=generator,
        seed=seed,
    )


def shared_texts(codes: Int64Array, most: int) -> Int64Array:
    """Groups of rows that share a text across columns, as an anchor in one row and a positive in
    another, directly or through others.

    Args:
        codes: int64 (columns, N), the number of the text of each row.
        most: rows of the largest group that batches can keep apart, one row in each. Larger ones
            are no groups.

    Returns:
        int64 (N,): the group of each row, -1 for none.
    """
    columns, rows = codes.shape
    count = int(codes.max()) + 1
    seen = sum((np.bincount(np.unique(side), minlength=count) for side in codes), np.zeros(count))
    crossing = seen[codes] > 1
    row = np.broadcast_to(np.arange(rows), (columns, rows))[crossing]
    size = rows + count
    links = coo_array((np.ones(len(row), np.int8), (row, rows + codes[crossing])), (size, size))
    groups = connected_components(links, directed=False)[1][:rows].astype(np.int64)
    sizes = np.bincount(groups)[groups]
    return np.where((sizes > 1) & (sizes <= most), groups, -1)


def _fields(planner: str) -> set[str]:
    if planner not in PLANNERS:
        return set()  # `EpochPlans` says so
    return {field.name for field in fields(PLANNERS[planner].options)}


def loss_settings(loss: Any) -> dict[str, Any]:
    """The options of a planner that a loss decides: ``temperature``, ``similarity``, ``scope``.

    Args:
        loss: a loss of sentence-transformers, or one around it such as MatryoshkaLoss. What it does
            not say is left out.
    """
    while not hasattr(loss, "scale") and not hasattr(loss, "temperature"):
        if not hasattr(loss, "loss"):
            return {}
        loss = loss.loss
    temperature = 1 / loss.scale if hasattr(loss, "scale") else loss.temperature
    settings: dict[str, Any] = {
        "temperature": float(temperature),
        "scope": "global" if getattr(loss, "gather_across_devices", False) else "device",
    }
    function = getattr(loss, "similarity_fct", None)
    for name, known in (("cosine", cos_sim), ("dot", dot_score)):
        if function is known:
            settings["similarity"] = name
    return settings


def _strings(values: Any, column: str) -> pa.Array:
    try:
        texts = pa.array(values, pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
        raise InputError(f"column {column!r}: expected texts ({error})") from None
    if texts.null_count:
        raise InputError(f"column {column!r}: has {texts.null_count} rows without text; drop them")
    return texts
