"""Planned epochs in a SentenceTransformerTrainer.

plans = PlannedEpochs(train_dataset, loss)
args = SentenceTransformerTrainingArguments("run", batch_sampler=plans)
trainer = SentenceTransformerTrainer(model, args, train_dataset, loss=loss, callbacks=[plans])
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from itertools import chain, pairwise, repeat
from math import isclose
from pathlib import Path
from typing import Any, Unpack
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from sentence_transformers import (
    CrossEncoder,
    MultiVectorEncoder,
    SentenceTransformer,
    SparseEncoder,
)  # fmt: skip
from sentence_transformers.base.sampler import (
    DefaultBatchSampler,
    ProportionalBatchSampler,
    RoundRobinBatchSampler,
)  # fmt: skip
from sentence_transformers.base.training_args import MultiDatasetBatchSamplers
from sentence_transformers.util import cos_sim, dot_score
from torch import Generator, cat, randint, randperm, stack
from torch.nn import Module
from torch.utils.data import ConcatDataset

from batchplan.embedding.table import has_table, token_table
from batchplan.errors import InputError
from batchplan.guard.guard import make_apart
from batchplan.guard.separation import filled
from batchplan.keywords import EpochKeywords
from batchplan.planners import PLANNERS
from batchplan.training import text_columns, transformers
from batchplan.training.arguments import checked
from batchplan.training.checks import asked_for_training, check_loader, digest_of
from batchplan.training.epochs import EpochPlans
from batchplan.training.multi_dataset import MultiDatasetPlans, Order
from batchplan.training.outputs import StepOutputs
from batchplan.training.sampler import random_batches
from batchplan.training.text_columns import TextColumns
from batchplan.training.text_encoding import BatchSize, prompting
from batchplan.training.transformers import uncompiled
from batchplan.typing import Int64Array

SIMILARITIES = {cos_sim: "cosine", dot_score: "dot"}
_AT_ONCE, _MOST_AT_ONCE = 128, 4096  # texts per batch when rows are embedded; on a GPU, at most
_ORDERS: dict[Any, tuple[Order, Any]] = {  # ours, and the trainer's own sampler
    MultiDatasetBatchSamplers.PROPORTIONAL: ("proportional", ProportionalBatchSampler),
    MultiDatasetBatchSamplers.ROUND_ROBIN: ("round_robin", RoundRobinBatchSampler),
}


class NoKnownAnswers(DefaultBatchSampler):
    """Random batches in which no row is a right answer to another one, as far as the texts say.

        args = SentenceTransformerTrainingArguments("run", batch_sampler=NoKnownAnswers)

    Use it instead of ``BatchSamplers.NO_DUPLICATES``. With the rows (A, 1), (B, 2) and (A, 2), no
    two of them share a batch; nor do two rows if a text is the anchor of one and a document of the
    other. Every row is in one batch of each epoch, the number of batches is known before, and all
    processes make the same ones. If a text has more rows than there are batches, its rows are
    spread evenly.

    Args:
        dataset: a datasets.Dataset with columns of text: anchor, positive and mined negatives.
        batch_size, drop_last, valid_label_columns, generator, seed: as of the library's own
            samplers.

    Raises:
        InputError: a column that is no label has other values than texts, or nulls.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        drop_last: bool,
        valid_label_columns: list[str] | None = None,
        generator: Generator | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(dataset, batch_size, drop_last, valid_label_columns, generator, seed)
        labels = set(dataset.column_names) & set(valid_label_columns or [])
        answers = text_columns.answers_of(TextColumns(dataset.remove_columns([*labels])).codes())
        self._separate = make_apart((), answers)
        self._rows = len(dataset)

    def __len__(self) -> int:
        whole, left = divmod(self._rows, int(self.batch_size))
        return whole + bool(left and not self.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        if self.generator is not None and self.seed is not None:
            self.generator.manual_seed(self.seed + self.epoch)
        order = randperm(self._rows, generator=self.generator).numpy()
        key = int(randint(2**62, (), generator=self.generator))
        offsets = np.minimum(np.arange(len(self) + 1) * self.batch_size, self._rows)
        drawn = np.random.Generator(np.random.Philox(key))
        rows = filled(order[: offsets[-1]], offsets, self._separate, drawn)
        for start, stop in pairwise(offsets.tolist()):
            yield rows[start:stop].tolist()


class PlannedEpochs(transformers.PlannedEpochs):
    """Plans each epoch with the current model, and serves its batches to the trainer.

    The columns of text (anchor, positive and mined negatives) are embedded with the prompts of the
    training. Planners of pairs embed only the anchor and the positive. A text of a
    MultiVectorEncoder gets the mean of its token vectors. Other data sets, such as for an
    evaluation, get random batches as usual.

    Unless ``guard=False``, rows that are right answers to each other, as far as the texts say, are
    in different batches, as with `NoKnownAnswers`, for all planners but those that have no guard.
    ``planner="random"`` then embeds nothing. Pass an ``anchor_id`` and a ``label_table`` to let ids
    say which texts are the same.

    Several data sets, in a dictionary, are planned each from its own columns and loss. Each step
    has rows of one of them, in the order of the trainer's ``multi_dataset_batch_sampler``; see
    `MultiDatasetPlans`.

    Args:
        dataset: the datasets.Dataset, or the dictionary of several, that the trainer gets.
        loss: the loss of the training, a function that makes it from the model, or a dictionary
            with one for each data set. It decides the temperature, the similarity, and whether
            vectors of all devices are gathered.
        planner: a name in `batchplan.planners.PLANNERS`.
        encoder: a SentenceTransformer to plan with instead of the trained model, for any trainer of
            the library whose loss has in-batch negatives. Its vectors do not change, so each row is
            embedded once, and only the scope follows from the loss.
        folder: where to save the folders of runs, as for transformers. Each of several data sets
            gets a folder in the run's.
        alpha: a number from 0 to 1. Each of several data sets gets a share of the steps
            proportional to (its steps)**alpha, instead of the trainer's order.
        options: other arguments of `EpochPlans`, and options of the planner. Defaults of its own:
            ``embeddings`` is ``training``, and ``random_epochs`` is half of the training, at most
            1, if the planner permits it, so that no epoch needs a pass over the data: the rest of a
            single epoch is planned from vectors that are predicted; see
            `batchplan.embedding.table`. With an ``encoder``, ``random_epochs`` is 0.

    Raises:
        InputError: as for transformers; and options that contradict the loss, or a gathering loss
            whose devices would get unequal parts.
    """

    @checked
    def __init__(
        self,
        dataset: Any,
        loss: Any,
        planner: str = "partition",
        *,
        folder: str | os.PathLike[str] | None = None,
        encoder: SentenceTransformer | None = None,
        alpha: float | None = None,
        **options: Unpack[EpochKeywords],
    ) -> None:
        if encoder is not None:
            if options.get("embeddings", "fresh") != "fresh" or is_not_dense(encoder):
                raise InputError(
                    f"encoder: got a {type(encoder).__name__}, expected a SentenceTransformer, and "
                    'no embeddings="training", as its vectors do not change'
                )
            # each row is embedded once; no steps are recorded
            options = {"random_epochs": 0, **options, "embeddings": "training"}
        options = {"embeddings": "training", **options}
        super().__init__(dataset, self._vectors, planner, folder=folder, **options)
        sets = dataset if isinstance(dataset, dict) else {"": dataset}
        wrong = "label_table" if len(sets) > 1 else "alpha"
        if {**options, "alpha": alpha}.get(wrong) is not None:
            raise InputError(
                f"{wrong}: got {len(sets)} data sets; alpha is for several. label_table is for "
                "one: join several with datasets.concatenate_datasets, and pass source_column"
            )
        known = PLANNERS.get(planner)  # `EpochPlans` refuses an unknown one
        self._known = {field.name for field in fields(known.options)} if known else set()
        most = None if known and known.tuples else 2
        self._columns = {name: TextColumns(own, most) for name, own in sets.items()}
        self._losses = dict(loss) if isinstance(loss, dict) else dict.fromkeys(self._columns, loss)
        if missing := sorted(self._columns.keys() - self._losses.keys()):
            raise InputError(f"loss: none for {', '.join(missing)}; pass a loss, or one for each")
        self.encoder, self.alpha = encoder, alpha
        self._size = BatchSize(_AT_ONCE, _AT_ONCE)
        self._multi_dataset: Any = None  # what the training arguments ask for
        self._found: dict[str, dict[str, Any]] = {}  # the settings of each loss
        self._outputs = StepOutputs()

    def __getstate__(self) -> dict[str, Any]:
        """The state for checkpoints, without the model and the data."""
        return {**super().__getstate__(), **dict.fromkeys(("_losses", "encoder"))}

    def __call__(self, dataset: Any, batch_size: int, **options: Any) -> Any:
        """Return the batches of the plans for the training, and random batches for an evaluation.
        For several data sets, `join` decides.

        Raises:
            InputError: the trainer trains on another data set; or as `batches`.
        """
        training = asked_for_training()
        planned = any(own.is_of(dataset) for own in self._columns.values())
        if training is not False and planned and len(self._columns) == 1:
            return self.batches(dataset, batch_size)
        if training and planned:
            return self.sampler  # `join` replaces it
        if training:
            raise InputError(
                "data set: the trainer trains on another one than the plans got; pass both the "
                "same Dataset, or the same dictionary of several"
            )
        return random_batches(dataset, batch_size=batch_size, **options)

    def join(self, dataset: ConcatDataset[Any], **options: Any) -> Any:
        """Return the batches of several data sets: planned ones for the training. The trainer
        calls this as its ``multi_dataset_batch_sampler``.

        Raises:
            InputError: the trainer trains on other data sets, or has them in another order.
        """
        if not asked_for_training():
            return _ORDERS[self._multi_dataset][1](dataset, **options)
        known, given = list(self._columns.values()), dataset.datasets
        if len(known) != len(given) or not all(map(TextColumns.is_of, known, given)):
            raise InputError(
                "data sets: the trainer has others than the plans got, or has them in another "
                "order; pass both the same dictionary"
            )
        batches = self.asked()
        size = self._arguments.train_batch_size
        check_loader(self.plans.batching, self.plans.num_rows, dataset, size)
        return batches

    def make_plans(self, folder: Path) -> EpochPlans | MultiDatasetPlans:
        """Make the plans of all epochs, by the training arguments. Writes `join` into these."""
        args = self._arguments
        asked: object = getattr(args, "batch_sampler", None)
        if asked is not self:
            raise InputError("batch_sampler: is not the plans; pass batch_sampler=plans")
        if args.device.type == "cuda":
            self._size = BatchSize(_AT_ONCE, _MOST_AT_ONCE)
        if not isinstance(self.dataset, dict):
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
        if len(plans) == 1:
            return plans[name]
        order = _ORDERS[self._multi_dataset][0] if self.alpha is None else self.alpha
        return MultiDatasetPlans(plans, order=order, seed=self.options.get("seed", 0))

    def _plans_of_set(self, name: str, folder: Path) -> EpochPlans:
        columns = self._columns[name]
        options = {**self.options, **self._settings(name)}
        options.setdefault("epochs", self._epochs())
        if self.options["embeddings"] == "training":
            options.setdefault("random_epochs", None)
        if self._records and has_table(self._model):
            options["predict"] = partial(self._predict, columns)
        options |= text_columns.ids_of(columns.dataset, folder, options, self.planner, columns)
        options["data"] = digest_of(columns.dataset)

        def embed(rows: Int64Array) -> Any:
            return self._embed_rows(rows, name)

        plans: EpochPlans = self.plans_of(folder, len(columns), embed, options)
        batching, sizes = plans.batching, plans.batch_sizes()
        if batching.scope == "global" and sizes is not None and (sizes % batching.world_size).any():
            raise InputError(
                f"tail: got {batching.tail}, but the last {sizes[-1]} rows fall into unequal parts "
                f"for {batching.world_size} devices, which gather_across_devices cannot join; pass "
                "tail='drop' or tail='pad'"
            )
        return plans

    def _predict(self, columns: TextColumns, *known: Any) -> Any:
        """Return vectors of rows for the rest of an epoch; see `TokenTable.predict`."""
        sides = [columns.parts_of(name) for name in columns.embedded]
        return token_table(self._model, sides).predict(*known)

    def _epochs(self) -> float:
        """Return the number of epochs of the training."""
        args = self._arguments
        if args.max_steps <= 0:
            return float(args.num_train_epochs)
        rows = args.per_device_train_batch_size * args.world_size * args.gradient_accumulation_steps
        return float(args.max_steps * rows / sum(map(len, self._columns.values())))

    def _settings(self, name: str) -> dict[str, Any]:
        """Return the temperature, similarity and scope of the loss of a data set; only the scope if
        the plan is made from other vectors than the loss compares."""
        other = self.encoder is not None or is_not_dense(self._model)
        known = self._known & {"scope"} if other else self._known
        settled = {key: value for key, value in self._found[name].items() if key in known}
        if self._arguments.world_size == 1:
            settled["scope"] = self.options.get("scope", "device")
        for key, value in settled.items():
            got = self.options.get(key, value)
            same = isclose(got, value) if isinstance(value, float) else got == value
            if not same:
                raise InputError(
                    f"{key}: got {got} for the plan, but the loss has {value} (temperature: 1 / "
                    "scale; scope: gather_across_devices); leave it out, or change the loss"
                )
        return settled

    def on_init_end(self, *events: Any, **others: Any) -> None:
        """Check the model, the arguments and the loss, and prepare to plan."""
        model = uncompiled(others["model"])
        dense = not is_not_dense(model) or isinstance(model, MultiVectorEncoder)
        if isinstance(model, CrossEncoder) or (self.encoder is None and not dense):
            raise InputError(
                f"model: got a {type(model).__name__}, which has no dense vectors to plan with; "
                "pass encoder=SentenceTransformer(...), a model to plan with; with a CrossEncoder, "
                "use PlannedBatches (docs/frameworks.md)"
            )
        for name, loss in self._losses.items():  # or a function that makes one, for `model_init`
            made = loss if isinstance(loss, Module) or not callable(loss) else loss(model)
            self._found[name] = loss_settings(made)
        super().on_init_end(*events, **others)

    def asked(self) -> Any:
        """Begin a run, and return its batches, for the trainer that asks now."""
        batches = super().asked()
        if self._records:
            self._outputs.follow(self._trainer)
        return batches

    def on_train_begin(self, *events: Any, **others: Any) -> None:
        """Require that the loader uses the batches of the plans, and listen to the model, which a
        trainer with `model_init` has made only now."""
        super().on_train_begin(*events, **others)
        if self._records:
            self._outputs.begin(self._model)

    def on_train_end(self, *events: Any, **others: Any) -> None:
        """End the run, and listen no more."""
        self._outputs.end()
        super().on_train_end(*events, **others)

    @property
    def _records(self) -> bool:
        return self.options["embeddings"] == "training" and self.encoder is None

    def on_step_end(self, *events: Any, **others: Any) -> None:
        """Record the vectors of the step, and count it."""
        self._record_outputs()
        super().on_step_end(*events, **others)

    on_substep_end = on_step_end  # a step whose gradients are accumulated

    def _record_outputs(self) -> None:
        """Record the first vectors of the step: of the anchors, then of each other
        column. Cached losses then compute the vectors of the same texts again, in parts."""
        if not (outputs := self._outputs.take()):
            return
        rows = self._rows()
        plans = self.plans
        name = next(iter(self._columns))
        if isinstance(plans, MultiDatasetPlans):
            name = plans.set_of(rows[0])
        columns = self._columns[name]
        vectors, size = cat(outputs), len(rows)
        plans.record(rows, *(vectors[at * size :][:size] for at in range(len(columns.embedded))))

    def _vectors(self, rows: Int64Array, name: str = "") -> list[Any]:
        """Return the vectors of each column of a data set: (n, d)."""
        texts = self._columns[name].texts(rows)
        if self.encoder is not None:
            encode = chain([self.encoder.encode_query], repeat(self.encoder.encode_document))
            each = zip(encode, texts.values(), strict=False)
            return [self._encoded(work, own) for work, own in each]
        tokens, others = isinstance(self._model, MultiVectorEncoder), len(texts) - 1
        similarity = {**self._found[name], **self.options}.get("similarity")
        form = {} if tokens else {"normalize_embeddings": similarity in (None, "cosine")}
        tasks = ["query", *["document"] * others] if tokens else ["", *[""] * others]
        asked = prompting(self._arguments, name, list(texts), tasks)
        vectors = [
            self._encoded(self._model.encode, own, **how, **form)
            for own, how in zip(texts.values(), asked, strict=True)
        ]
        return [stack([own.mean(0) for own in side]) for side in vectors] if tokens else vectors

    def _encoded(self, encode: Callable[..., Any], texts: pa.Array, **asked: Any) -> Any:
        args = self._arguments
        asked["show_progress_bar"] = args.process_index == 0 and not args.disable_tqdm
        return self._size.fitted(lambda size: encode(texts.to_pylist(), batch_size=size, **asked))


def loss_settings(loss: Any) -> dict[str, Any]:
    """Return the options of a planner that a loss decides: ``temperature``, ``similarity``,
    ``scope``.

    Args:
        loss: a loss of sentence-transformers, or one around it such as MatryoshkaLoss. An option
            that it does not decide is left out.
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
    if name := SIMILARITIES.get(getattr(loss, "similarity_fct", None)):
        settings["similarity"] = name
    return settings


def is_not_dense(model: Any) -> bool:
    """Return whether a model returns no single dense vector for a text."""
    return isinstance(model, SparseEncoder) or not isinstance(model, SentenceTransformer)
