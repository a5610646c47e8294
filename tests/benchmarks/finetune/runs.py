"""One run: an encoder fine-tuned on a domain by a line of the table, at one rate, with one seed."""

from __future__ import annotations

import resource
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.training_args import BatchSamplers
from sentence_transformers.util import mine_hard_negatives
from transformers import TrainerCallback

from batchplan import mine_negatives
from batchplan.plans.plan import Plan
from batchplan.training.sentence_transformers import PlannedEpochs
from tests.benchmarks.finetune.domains import COLUMNS, load
from tests.benchmarks.finetune.encoders import BF16, ENCODERS, autocast
from tests.benchmarks.finetune.lines import LINES, RATE_ROWS, Line
from tests.benchmarks.finetune.scores import evaluators, nano_beir, scores
from tests.benchmarks.finetune.table import NANO_BEIR
from tests.benchmarks.finetune.vectors import PREDICTORS, VECTORS, Sides

REFERENCE_STEPS = 10  # of a run
MICRO_BATCH = 64  # rows that a cached loss embeds at once

Run = dict[str, Any]


def seconds() -> float:
    """Processor seconds of this process, which has one thread, and of those it started."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Reference:
    """Steps of shuffled batches of 64, run between those of a line.

    Their mean says how fast the machine is while the line runs. Times of runs are compared in
    these steps, as other work changes the speed.
    """

    def __init__(self, data: Dataset, model: str) -> None:
        self.data, self.encoder = data, ENCODERS[model]().train()
        self.loss = losses.MultipleNegativesRankingLoss(self.encoder)
        self.optimizer = torch.optim.AdamW(self.encoder.parameters(), fused=True)
        self.times: list[float] = []
        self.step()
        self.times.clear()  # the first step warms up

    def step(self) -> None:
        """One more step, with the next batch."""
        batch = self.data[64 * len(self.times) : 64 * (1 + len(self.times))]
        start = time.process_time()
        with autocast():
            loss = self.loss([self.encoder.preprocess(batch[name]) for name in COLUMNS], None)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.times.append(time.process_time() - start)


class Curve(TrainerCallback):
    """The scores of the model after each epoch, and the seconds that training took until then.

    Evaluations and steps of reference are off the clock. All else counts: embedding, planning,
    mining.
    """

    def __init__(
        self, model: SentenceTransformer, held_out: dict[str, Dataset], reference: Reference
    ) -> None:
        self.model, self.reference = model, reference
        self.evaluators = {name: evaluators(pairs) for name, pairs in held_out.items()}
        self.points: dict[str, list[Run]] = {"test": [], "validation": []}
        self.start = seconds()

    def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> None:
        """Run a step of reference now and then, off the clock."""
        if state.global_step % max(1, state.max_steps // REFERENCE_STEPS) == 0:
            now = seconds()
            self.reference.step()
            self.start += seconds() - now

    def on_epoch_end(self, _: Any, state: Any, control: Any, **__: Any) -> None:
        """Evaluate, off the clock."""
        now = seconds()
        point = {"epoch": state.epoch, "seconds": now - self.start}
        for name, both in self.evaluators.items():
            self.points[name].append({**point, **scores(self.model, both)})
        self.start += seconds() - now


class Ordered(TrainerCallback):
    """Orders the planned batches of half an epoch, as `PlanMaker` saves them."""

    def __init__(self, plans: PlannedEpochs, order: str) -> None:
        self.plans, self.order = plans, ORDERS[order]

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        """Order the rest of the epoch once it is planned."""
        planner = self.plans.plans._planner
        make = planner.make_rest

        def make_rest(epoch: int, sides: list[Any]) -> None:
            rest = planner.begun(epoch)[1]
            make(epoch, sides)
            path, first = planner.files.rest_path(epoch), planner.turn(epoch)
            plan = Plan.load(path)
            begun = plan.batch_offsets[first]
            batches = np.split(plan.rows[begun:], plan.batch_offsets[first + 1 : -1] - begun)
            places = [np.searchsorted(rest, batch) for batch in batches]
            unit = [side / np.linalg.norm(side.astype(np.float32), axis=1)[:, None]
                    for side in sides]  # fmt: skip
            order = self.order([[side[rows] for side in unit] for rows in places])
            rows = np.concatenate([plan.rows[:begun], *(batches[batch] for batch in order)])
            Plan(rows, plan.batch_offsets, plan.metadata).save(path, force=True)

        planner.make_rest = make_rest


def by_hardness(batches: list[list[Any]]) -> list[int]:
    """The batches by the mean similarity of their negatives, the least first."""
    hardness = [((x @ y.T).sum() - (x * y).sum()) / (len(x) * (len(x) - 1)) for x, y in batches]
    return list(np.argsort(hardness, kind="stable"))


def by_distance(batches: list[list[Any]], sign: int) -> list[int]:
    """The batches in a row: after each the nearest that is left by its mean, or the farthest."""
    means = np.stack([np.concatenate(sides, 1).mean(0) for sides in batches])
    order, left = [0], list(range(1, len(means)))
    while left:
        near = means[left] @ means[order[-1]]
        order.append(left.pop(int(np.argmax(sign * near))))
    return order


ORDERS: dict[str, Any] = {
    "rising": by_hardness,
    "falling": lambda batches: by_hardness(batches)[::-1],
    "near": lambda batches: by_distance(batches, 1),
    "far": lambda batches: by_distance(batches, -1),
}


class Strength(TrainerCallback):
    """Changes the `hardness_strength` of a loss after half of the steps."""

    def __init__(self, loss: Any, later: float) -> None:
        self.loss, self.later = loss, later

    def on_step_begin(self, _: Any, state: Any, control: Any, **__: Any) -> None:
        """Change it when the second half begins."""
        if 2 * state.global_step >= state.max_steps:
            self.loss.hardness_strength = self.later


class Parts(TrainerCallback):
    """Gives the plan of each epoch its own number of mega-batches, or makes its batches random.

    `EpochPlans` has one number for all epochs, so this changes its planner.
    """

    def __init__(self, plans: PlannedEpochs, parts: tuple[int | None, ...]) -> None:
        self.plans, self.parts = plans, parts

    def on_epoch_begin(self, _: Any, state: Any, control: Any, **__: Any) -> None:
        """Set the number of the epoch that begins."""
        epoch, planner = round(state.epoch), self.plans.plans._planner
        count = self.parts[epoch % len(self.parts)]
        planner._random_epochs = epoch + 1 if count == 0 else epoch
        options = {name: value for name, value in planner.options.items() if name != "mega_batches"}
        planner.options = {**options, "mega_batches": count} if count else options


def train(
    domain: str,
    model: str,
    line: str,
    rate: float,
    seed: int,
    rows: int,
    epochs: float,
    nano_dataset: str | None = None,
    save: Path | None = None,
) -> Run:
    """The scores after each epoch of the test pairs, and with seed 0 of the validation pairs.

    With few rows, only the validation pairs are scored. ``step`` is the mean of the steps of
    `Reference`, in seconds, ``dtype`` that of the products. The trained model is also scored on
    ``nano_dataset``; see `nano_beir`. ``figures`` are those of the last plan; see `EpochPlans`.
    ``save`` names a file for its weights.
    """
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    way, split, encoder = LINES[line], load(domain, rows), ENCODERS[model]()
    held_out = {"test": Dataset(split.test)} if rows > RATE_ROWS else {}
    held_out |= {} if seed else {"validation": Dataset(split.validation)}
    reference = Reference(Dataset(split.train), model)
    curve = Curve(encoder, held_out, reference)
    data = Dataset(split.train)
    if way.keep < 1:
        data = kept(data, encoder, way.keep)
    if way.mined is not None:
        data = MINERS[way.mined](data, encoder, seed)
    loss = LOSSES[way.loss](encoder, model, way.of_domain.get(domain, way.arguments))
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        sampler: dict[str, Any] = {}
        callbacks: list[TrainerCallback] = [curve]
        if way.later_strength is not None:
            callbacks.append(Strength(loss, way.later_strength))
        if way.planner is not None:
            options = ({"refine": 4} if way.planner == "partition" else {}) | way.plan
            if way.reference:
                options |= judge(way.reference, data, model, Path(folder))
            plans = PlannedEpochs(data, loss, way.planner, seed=1000 * seed, **options)
            sampler["batch_sampler"] = plans
            if way.vectors is not None:
                sides = [list(data[name]) for name in COLUMNS]
                if way.plan["random_epochs"] is None:
                    plans._predict = lambda _, *known: predicted(encoder, way, sides, known)
                else:
                    found = cache(lambda: VECTORS[way.vectors](encoder, sides))
                    plans._embed = lambda rows, _: [side[rows] for side in found()]
            callbacks += [Parts(plans, way.parts)] if way.parts else []
            callbacks += [Ordered(plans, way.order)] if way.order else []
            callbacks += [plans]
        elif way.no_duplicates:
            sampler["batch_sampler"] = BatchSamplers.NO_DUPLICATES
        arguments = SentenceTransformerTrainingArguments(
            folder, per_device_train_batch_size=way.batch_size, num_train_epochs=epochs,
            learning_rate=rate, warmup_steps=0.1, bf16=BF16, use_cpu=True,
            seed=seed, report_to="none", save_strategy="no", logging_strategy="no",
            disable_tqdm=True, optim="adamw_torch_fused", **sampler,
        )  # fmt: skip
        trainer = SentenceTransformerTrainer(
            encoder, arguments, data, loss=loss, callbacks=callbacks
        )
        if way.trained:
            trainer.train()
            figures |= plans.plans.figures if way.planner is not None else {}
        else:
            curve.on_epoch_end(None, trainer.state, None)
    if save is not None:
        torch.save(encoder.state_dict(), save)
    if nano_dataset and "test" in held_out:
        curve.points["test"][-1][NANO_BEIR] = nano_beir(encoder, nano_dataset)
    step = float(np.mean(reference.times or 0))
    told = {"step": step, "dtype": "bfloat16" if BF16 else "float32"}
    return {**curve.points, **told, **({"figures": figures} if figures else {})}


def mined(data: Dataset, encoder: SentenceTransformer, _seed: int) -> Dataset:
    """The pairs with a column ``negative``, by the library's own mining: the document most similar
    to the anchor, but less than 95% as similar as the positive, among the nearest 1,000.

    A fifth of the rows has none; these get a random document, as the library would drop them.
    """
    found = mine_hard_negatives(
        data, encoder, num_negatives=1, relative_margin=0.05, range_max=1000, batch_size=128,
        verbose=False,
    )  # fmt: skip
    pairs = zip(*(found[name] for name in COLUMNS), strict=True)
    negatives = dict(zip(pairs, found["negative"], strict=True))
    others = np.random.default_rng(0).integers(1, len(data), len(data))
    documents = data["positive"]
    column = [
        negatives.get(pair, documents[(row + int(others[row])) % len(data)])
        for row, pair in enumerate(zip(*(data[name] for name in COLUMNS), strict=True))
    ]
    return data.add_column("negative", column)


def drawn(data: Dataset, encoder: SentenceTransformer, seed: int) -> Dataset:
    """The pairs with a column ``negative``, another document that `scns` draws for each anchor."""
    sides = [encoder.encode(list(data[name]), batch_size=128) for name in COLUMNS]
    groups = np.unique(data["positive"], return_inverse=True)[1]
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "groups.parquet")
        pq.write_table(pa.table({"document": groups}), file)
        options = {"label_table": file, "group_column": "document"}
        found = mine_negatives(*sides, planner="scns", per_row=1, seed=seed, **options)
    return data.add_column("negative", data.select(found.negatives[:, 0])["positive"])


MINERS = {"library": mined, "scns": drawn}


def predicted(encoder: SentenceTransformer, way: Line, sides: Sides, known: Any) -> Any:
    """The vectors of the rest of an epoch, from its recorded ones."""
    with autocast():
        return PREDICTORS[str(way.vectors)](encoder, sides).predict(*known)


def kept(data: Dataset, encoder: SentenceTransformer, share: float) -> Dataset:
    """The share of the pairs that are the most similar, in their order."""
    with autocast():
        x, y = VECTORS["pass"](encoder, [list(data[name]) for name in COLUMNS])
    rows = np.argsort(-(x.astype(np.float32) * y).sum(1), kind="stable")
    return data.select(np.sort(rows[: round(share * len(rows))]))


def judge(vectors: str, data: Dataset, model: str, folder: Path) -> Run:
    """Options of a planner that name files of vectors of the encoder before its training."""
    files = [folder / f"{name}.npy" for name in COLUMNS]
    found = VECTORS[vectors](guide(model), [list(data[name]) for name in COLUMNS])
    for file, side in zip(files, found, strict=True):
        np.save(file, side)
    return {"reference": [str(files[0])], "reference_pair": [str(files[1])]}


def _cached(encoder: SentenceTransformer, _: str, arguments: Run) -> torch.nn.Module:
    return losses.CachedMultipleNegativesRankingLoss(
        encoder, mini_batch_size=MICRO_BATCH, **arguments
    )


def _cached_gist(encoder: SentenceTransformer, model: str, arguments: Run) -> torch.nn.Module:
    return losses.CachedGISTEmbedLoss(
        encoder, guide(model), mini_batch_size=MICRO_BATCH, **arguments
    )


def guide(model: str) -> SentenceTransformer:
    """The encoder before its training, which says what a loss masks."""
    return ENCODERS[model]().eval().requires_grad_(False)


LOSSES: dict[str, Any] = {
    "mnrl": lambda encoder, _, arguments: losses.MultipleNegativesRankingLoss(encoder, **arguments),
    "cached": _cached,
    "gist": lambda encoder, model, arguments: losses.GISTEmbedLoss(
        encoder, guide(model), **arguments
    ),
    "cached-gist": _cached_gist,
}
