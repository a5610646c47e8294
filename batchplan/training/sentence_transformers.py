"""Planned epochs in a SentenceTransformerTrainer, in three lines.

plans = PlannedEpochs("plans", train_dataset, loss)
args = SentenceTransformerTrainingArguments("run", batch_sampler=plans)
trainer = SentenceTransformerTrainer(model, args, train_dataset, loss=loss, callbacks=[plans])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from itertools import chain, repeat
from math import isclose
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import pyarrow as pa
from sentence_transformers import (
    CrossEncoder,
    MultiVectorEncoder,
    SentenceTransformer,
    SentenceTransformerTrainingArguments,
    SparseEncoder,
)
from sentence_transformers.base.sampler import (
    DefaultBatchSampler,
    MultiDatasetDefaultBatchSampler,
    ProportionalBatchSampler,
    RoundRobinBatchSampler,
)
from sentence_transformers.base.training_args import MultiDatasetBatchSamplers
from sentence_transformers.util import cos_sim, dot_score
from torch import Generator, Tensor, cat, cuda, stack
from torch.utils.data import ConcatDataset, RandomSampler

from batchplan.errors import InputError
from batchplan.planners import PLANNERS
from batchplan.training import transformers
from batchplan.training.epochs import EpochPlans
from batchplan.training.multi_dataset import MultiDatasetPlans, Order
from batchplan.training.sampler import PlanBatchSampler, asked_for_training, check_loader
from batchplan.training.text_columns import (
    GROUPS,
    Int64Array,
    TextColumns,
    first_rows,
    shared_texts,
    write_groups,
)

Result = TypeVar("Result")

_TASKS = "query", "document"  # of anchors and documents, for a model of token vectors
_AT_ONCE, _MOST_AT_ONCE = 128, 4096  # texts per batch when rows are embedded
_ORDERS: dict[Any, Order] = {
    MultiDatasetBatchSamplers.PROPORTIONAL: "proportional",
    MultiDatasetBatchSamplers.ROUND_ROBIN: "round_robin",
}
_SAMPLERS: dict[Any, type[MultiDatasetDefaultBatchSampler]] = {
    MultiDatasetBatchSamplers.PROPORTIONAL: ProportionalBatchSampler,
    MultiDatasetBatchSamplers.ROUND_ROBIN: RoundRobinBatchSampler,
}


class PlannedEpochs(transformers.PlannedEpochs):
    """What plans each epoch from the model as it is then, and the batches of the plans.

    Embeds the columns of text, those of the anchor, its positive and mined negatives, with the
    prompts of the training; a text of a MultiVectorEncoder gets the mean of its token vectors. A
    planner with a guard keeps rows with equal texts apart: those of a column share a vector, to the
    last bit, and rows of which one has the anchor of another as its positive are a group, see
    `batchplan.training.text_columns.shared_texts`. Other data sets, such as that of an evaluation,
    get random batches as usual. Planners of pairs look at the anchor and the positive alone.

    Several data sets, in a dictionary, are planned each from its own columns and loss; each step
    has rows of one of them, see `MultiDatasetPlans`. The trainer's ``multi_dataset_batch_sampler``
    is the order of the data sets.

    Args:
        folder: where the plans are saved, a new one for each run; see `EpochPlans`. Those of
            several data sets are in folders of their own in it.
        dataset: a datasets.Dataset, or a dictionary of several, what the trainer gets.
        loss: the loss of the training, which says the temperature, the similarity, and whether
            vectors of all devices are gathered; or a dictionary of one for each data set.
        planner: a name in `batchplan.planners.PLANNERS`.
        encoder: a SentenceTransformer to plan with instead of the trained model, for any trainer of
            the library whose loss has in-batch negatives. Its vectors do not change, so each row is
            embedded once, and only the scope follows from the loss.
        alpha: a number from 0 to 1: each of several data sets gets a share of the steps
            proportional to (its steps)**alpha, instead of the trainer's order.
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
        encoder: SentenceTransformer | None = None,
        alpha: float | None = None,
        embed_batch_size: int | None = None,
        **options: Any,
    ) -> None:
        if encoder is not None:
            if options.get("embeddings", "fresh") != "fresh" or is_not_dense(encoder):
                raise InputError(
                    f"encoder: got a {type(encoder).__name__}, expected a SentenceTransformer, and "
                    'no embeddings="training", as its vectors do not change'
                )
            options["embeddings"] = "training"  # kept; none are recorded
        super().__init__(folder, dataset, self._vectors, planner, **options)
        several = isinstance(dataset, dict)
        if several and len(dataset) < 2:
            raise InputError(
                "data set: got a dictionary of less than two; pass the data set, and pass it to "
                "the trainer, without the dictionary"
            )
        if alpha is not None and not (several and 0 <= alpha <= 1):
            raise InputError(
                f"alpha: got {alpha} for {len(dataset) if several else 1} data sets, expected a "
                "number from 0 to 1 for several"
            )
        if several and "label_table" in options:
            raise InputError(
                "label_table: has the labels of one data set, but got several; join them with "
                "datasets.concatenate_datasets, and plan with source_column"
            )
        most = None if planner in PLANNERS and PLANNERS[planner].tuples else 2
        sets = dataset if several else {"": dataset}
        self._columns = {name: TextColumns(own, most) for name, own in sets.items()}
        self._losses = dict(loss) if isinstance(loss, dict) else dict.fromkeys(self._columns, loss)
        if missing := sorted(self._columns.keys() - self._losses.keys()):
            raise InputError(
                f"loss: none for {', '.join(missing)}; pass a loss, or a dictionary with one for "
                "each data set"
            )
        self.encoder, self.alpha, self.embed_batch_size = encoder, alpha, embed_batch_size
        self._size = BatchSize(embed_batch_size or _AT_ONCE)
        self._planner = planner
        self._arguments: Any = None
        self._multi_dataset: Any = None  # what the training arguments ask for
        self._outputs: list[Tensor] = []  # of this step, one after the other

    def __getstate__(self) -> dict[str, Any]:
        """What checkpoints hold of it: neither the model nor the data."""
        lost = dict.fromkeys(("_losses", "_arguments", "encoder"))
        return {**super().__getstate__(), **lost, "_outputs": []}

    def __call__(
        self, dataset: Any, batch_size: int, *others: Any, **named: Any
    ) -> PlanBatchSampler | DefaultBatchSampler:
        """The batches of the plans for the training, which `join` returns for several data sets;
        random batches for an evaluation.

        Raises:
            InputError: the trainer trains on another data set; or as `batches`.
        """
        training = asked_for_training()
        planned = any(own.is_of(dataset) for own in self._columns.values())
        if training is not False and planned and len(self._columns) == 1:
            return self.batches(dataset, batch_size)
        if training and planned:
            check_loader(self.plans.batching, len(dataset), dataset, batch_size)
            return self.sampler
        if training:
            raise InputError(
                "data set: the trainer trains on another one than the plans got; pass both the "
                "same Dataset, or the same dictionary of several"
            )
        return random_batches(dataset, batch_size, *others, **named)

    def join(
        self, dataset: ConcatDataset[Any], *, batch_samplers: list[Any], **named: Any
    ) -> PlanBatchSampler | MultiDatasetDefaultBatchSampler:
        """The batches of several data sets, for a trainer, which calls this as its
        ``multi_dataset_batch_sampler``: those of the plans for the training.

        Raises:
            InputError: the trainer trains on other data sets, or has them in another order.
        """
        if not asked_for_training():
            return _SAMPLERS[self._multi_dataset](dataset, batch_samplers=batch_samplers, **named)
        known, given = list(self._columns.values()), dataset.datasets
        if len(known) != len(given) or not all(map(TextColumns.is_of, known, given)):
            raise InputError(
                "data sets: the trainer has others than the plans got, or has them in another "
                "order; pass both the same dictionary"
            )
        self._asked = True
        return self.sampler

    def make_plans(
        self, args: SentenceTransformerTrainingArguments
    ) -> EpochPlans | MultiDatasetPlans:
        """The plans of all epochs, by the training arguments, into which `join` is written."""
        asked: object = getattr(args, "batch_sampler", None)
        if asked is not self:
            raise InputError(
                "batch_sampler: the training arguments hold another one; pass batch_sampler=plans"
            )
        self._arguments = args
        if self.embed_batch_size is None and args.device.type == "cuda":
            self._size = BatchSize(_AT_ONCE, _MOST_AT_ONCE)
        folder = Path(self._series["folder"])
        if len(self._columns) == 1:
            return self._plans_of_set("", folder)
        if args.multi_dataset_batch_sampler != self.join:
            self._multi_dataset = args.multi_dataset_batch_sampler
        if self._multi_dataset not in _ORDERS:
            raise InputError(
                f"multi_dataset_batch_sampler: got {self._multi_dataset!r}, expected proportional "
                "or round_robin; or leave it out, and pass alpha to the plans"
            )
        args.multi_dataset_batch_sampler = self.join
        plans = {}
        for number, name in enumerate(self._columns):
            try:
                plans[name] = self._plans_of_set(name, folder / f"{number}-{quote(name, safe='')}")
            except InputError as error:
                raise InputError(f"{name}: {error}") from None
        order = _ORDERS[self._multi_dataset] if self.alpha is None else self.alpha
        return MultiDatasetPlans(plans, order=order, seed=self._series["seed"])

    def _plans_of_set(self, name: str, folder: Path) -> EpochPlans:
        columns, groups = self._columns[name], folder / "texts.parquet"
        options = {**self.options, **self._settings(self._losses[name])}
        own_table = options.get("label_table")
        grouped = "group_column" in _fields(self._planner) and options.get("group_column") is None
        if grouped:
            options |= {"group_column": GROUPS, "label_table": str(groups)}

        def embed(rows: Int64Array) -> Any:
            return self._embed_rows(rows, name)

        def same() -> list[Int64Array]:
            codes = columns.codes()
            if grouped:
                most = len(columns) // plans.batching.batch_size
                write_groups(groups, shared_texts(codes[:2], most), own_table)
            return first_rows(codes)

        others = {"folder": folder, "same": same, "data": columns.digest()}
        plans = self.plans_of(self._arguments, len(columns), embed, options, **others)
        batching, sizes = plans.batching, plans.batch_sizes()
        if batching.scope == "global" and sizes is not None and (sizes % batching.world_size).any():
            raise InputError(
                f"tail: got {batching.tail}, but the last {sizes[-1]} rows fall into unequal parts "
                f"for {batching.world_size} devices, which gather_across_devices cannot join; pass "
                "tail='drop' or tail='pad'"
            )
        return plans

    def _settings(self, loss: Any) -> dict[str, Any]:
        """Temperature, similarity and scope, as a loss has them; of other vectors than those that
        the loss compares, the scope alone."""
        known = _fields(self._planner)
        if self.encoder is not None or is_not_dense(self._model):
            known &= {"scope"}
        settled = {name: value for name, value in loss_settings(loss).items() if name in known}
        if self._arguments.world_size == 1:
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
        model: Any = others.get("model")
        if isinstance(model, CrossEncoder):
            raise InputError(
                "model: got a CrossEncoder, whose losses read pairs one by one, so that a plan "
                "changes nothing; mine negatives with batchplan hardneg. Its "
                "MultipleNegativesRankingLoss alone has in-batch negatives: for it, put "
                "PlannedBatches before the trainer (docs/frameworks.md)"
            )
        if (
            self.encoder is None
            and is_not_dense(model)
            and not isinstance(model, MultiVectorEncoder)
        ):
            raise InputError(
                f"model: got a {type(model).__name__}, which has no dense vectors to plan with; "
                "pass encoder=SentenceTransformer(...), a model to plan with"
            )
        super().on_init_end(*events, **others)
        if self._series["embeddings"] == "training" and self.encoder is None:
            # The last module and not the model: losses may replace the forward method of that.
            model[-1].register_forward_hook(self._keep_output)

    def on_substep_end(self, *events: Any, **others: Any) -> None:
        """Record the vectors of the step, and count it."""
        self._record_outputs()
        super().on_substep_end(*events, **others)

    def on_step_end(self, *events: Any, **others: Any) -> None:
        """Record the vectors of the step, and count it."""
        self._record_outputs()
        super().on_step_end(*events, **others)

    def _keep_output(self, module: Any, _inputs: Any, output: Any) -> None:
        if not module.training:
            return
        vectors = output.get("sentence_embedding")
        if vectors is None:
            mask = output["attention_mask"].unsqueeze(-1)
            vectors = (output["token_embeddings"] * mask).sum(1) / mask.sum(1).clamp(min=1)
        self._outputs.append(vectors.detach())

    def _record_outputs(self) -> None:
        """Record the first vectors of the step: those of the anchors, then those of each column of
        documents. What follows are the same texts again: cached losses compute their vectors a
        second time, in parts."""
        if not self._outputs:
            return
        (outputs, self._outputs), rows = (self._outputs, []), self._rows()
        plans = self.plans
        name = plans.set_of(rows[0]) if isinstance(plans, MultiDatasetPlans) else ""
        columns = self._columns[name]
        vectors, size = cat(outputs), len(rows)
        self.record(*(vectors[side * size :][:size] for side in range(len(columns.names))))

    def _vectors(self, rows: Int64Array, name: str = "") -> list[Any]:
        """The vectors of the columns of a data set: (n, d)."""
        texts = self._columns[name].texts(rows)
        if self.encoder is not None:
            encode = chain([self.encoder.encode_query], repeat(self.encoder.encode_document))
            each = zip(encode, texts.values(), strict=False)
            return [self._encoded(work, own) for work, own in each]
        args = self._arguments
        tasks, prompts = _of_set(args.router_mapping, name), _of_set(args.prompts, name)
        if not isinstance(prompts, str) and any(isinstance(own, dict) for own in prompts.values()):
            raise InputError(
                "prompts: got those of several data sets, but none for this one; map column names "
                "to prompts"
            )
        similarity = {**loss_settings(self._losses[name]), **self.options}.get("similarity")
        of_tokens = isinstance(self._model, MultiVectorEncoder)
        sides = []
        usual_tasks = chain(_TASKS, repeat(_TASKS[1]))
        for usual, (column, own) in zip(usual_tasks, texts.items(), strict=False):
            # "" and not None: the training adds no default prompt
            asked = {"prompt": prompts if isinstance(prompts, str) else prompts.get(column, "")}
            if task := tasks.get(column, usual if of_tokens else None):
                asked["task"] = task
            if not of_tokens:
                asked["normalize_embeddings"] = similarity in (None, "cosine")
            vectors = self._encoded(self._model.encode, own, **asked)
            sides.append(stack([each.mean(0) for each in vectors]) if of_tokens else vectors)
        return sides

    def _encoded(self, encode: Callable[..., Any], texts: pa.Array, **asked: Any) -> Any:
        args = self._arguments
        asked["show_progress_bar"] = args.process_index == 0 and not args.disable_tqdm
        return self._size.fitted(lambda size: encode(texts.to_pylist(), batch_size=size, **asked))


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


def is_not_dense(model: Any) -> bool:
    """Whether a model gives no single dense vector of a text."""
    return isinstance(model, SparseEncoder) or not isinstance(model, SentenceTransformer)


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


def _of_set(given: Any, name: str) -> Any:
    """Prompts or tasks of a data set, from those by data set, or those of all."""
    given = given or {}
    return given[name] if isinstance(given, Mapping) and name in given else given
