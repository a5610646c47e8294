"""An epoch whose first half is random, and whose other half is planned from predicted vectors."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from tokenizers import Tokenizer

from batchplan import Plan
from batchplan.consumption import Trace, verify
from batchplan.consumption.plans import read_plans
from batchplan.embedding.table import has_table, token_table
from batchplan.training import Recorder

from .processes import run
from .shown import epochs_of, run_of
from .test_sentence_transformers import make
from .texts import load_model, pairs, save_model

ONE = {"num_train_epochs": 1}
STEPS = {None: 12, "drop": 5, "pad": 5}  # of 47 rows; full ones
HALF = {"planner": "partition", "embeddings": "training", "random_epochs": None}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_model(folder, 376)
    return folder


def train(folder, model_folder, resume=False, trace=False, arguments=(), **options):
    """The rows of each step, and how many rows the model embedded in addition to its steps."""
    trainer = make(folder, model_folder, arguments={**ONE, **dict(arguments)}, **HALF | options)
    if trace:
        Recorder(folder / "trace").attach(trainer)
    embedded, encode = [], trainer.model.encode

    def counted(texts, **how):
        embedded.extend(texts)
        return encode(texts, **how)

    trainer.model.encode = counted
    trainer.train(resume_from_checkpoint=resume or None)
    return trainer.seen, len(embedded) // 2


def of_run(folder, devices):
    """The plan that the epoch began with, and the one with the planned rest."""
    folder = run_of(folder / "plans")
    return Plan.load(folder / "plan-0000.npz"), Plan.load(folder / "rest-0000.npz")


@pytest.mark.parametrize(
    ("devices", "options"),
    [
        (1, {}),
        (1, {"loss": "CachedMultipleNegativesRankingLoss"}),
        (1, {"arguments": {"dataloader_num_workers": 2}}),
        (1, {"arguments": {"gradient_accumulation_steps": 2}}),
        (2, {"arguments": {"per_device_train_batch_size": 2, "dataloader_num_workers": 2}}),
        (2, {"gather": True, "tail": "drop"}),
        (2, {"gather": True, "tail": "pad"}),
    ],
)
def test_the_steps_see_a_random_and_a_planned_half(devices, options, tmp_path, saved):
    results = run(train, devices, tmp_path, saved, **options)
    assert [seen for seen, _ in results] == epochs_of(tmp_path / "plans", devices, 1)
    begun, rest = of_run(tmp_path, devices)
    assert (begun.metadata.planner, rest.metadata.planner) == ("random", "partition")
    assert np.array_equal(begun.batch_offsets, rest.batch_offsets)
    kept = [np.array_equal(*both) for both in zip(begun, rest, strict=True)]
    steps, at_once = STEPS[options.get("tail")], 1 if "gather" in options else devices
    half = steps // 2 * at_once
    assert kept == [True] * half + [False] * (len(kept) - half)


@pytest.mark.parametrize("devices", [1, 2])
def test_only_late_rows_are_embedded(devices, tmp_path, saved):
    """Steps record the others. A loader takes batches before the training needs them, and the last
    eighth of the random ones is not waited for."""
    ((_, embedded), *_) = run(train, devices, tmp_path, saved, dataset=pairs(188))
    assert embedded == 0


def test_plans_do_not_depend_on_workers(tmp_path, saved):
    seen = [
        train(tmp_path / str(count), saved, dataset=pairs(376),
              arguments={"dataloader_num_workers": count})[0]
        for count in (0, 2)
    ]  # fmt: skip
    assert seen[0] == seen[1]


@pytest.mark.parametrize(("devices", "workers"), [(1, 2), (2, 0)])
@pytest.mark.parametrize("stop", [4, 10])
def test_a_run_goes_on_in_each_half(devices, workers, stop, tmp_path, saved):
    options = {"arguments": {"dataloader_num_workers": workers, "per_device_train_batch_size": 2}}
    begun = run(train, devices, tmp_path, saved, stop=stop, trace=True, **options)
    kept = {path.name: path.read_bytes() for path in run_of(tmp_path / "plans").glob("*.npz")}
    went_on = run(train, devices, tmp_path, saved, resume=True, trace=True, **options)
    seen = [one[0][:stop] + other[0] for one, other in zip(begun, went_on, strict=True)]
    assert seen == epochs_of(tmp_path / "plans", devices, 1)
    now = {path.name: path.read_bytes() for path in run_of(tmp_path / "plans").glob("*.npz")}
    assert kept.items() <= now.items()
    assert now.keys() == {"plan-0000.npz", "rest-0000.npz"}
    plans = read_plans([run_of(tmp_path / "plans")])
    assert verify(plans, Trace(tmp_path / "trace")).exact


def test_models_with_and_without_a_table(saved):
    """A StaticEmbedding has a tokenizer of another library; a model of images has none."""
    words = Tokenizer.from_file(str(saved / "tokenizer.json"))
    static = SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=5)], device="cpu")
    texts = [[["x1 x2", "x3"], ["", "x9 unknown"]], [["y1", "y2"], ["y3", "y4"]]]
    for model, dim in ((static, 5), (load_model(saved), 16)):
        assert has_table(model)
        x, y = token_table(model, texts).embed(np.arange(4))
        assert x.shape == y.shape == (4, dim)
        assert not np.array_equal(x[1], x[3])
        # settings that an earlier call has left change nothing, and stay
        used = getattr(model.tokenizer, "backend_tokenizer", model.tokenizer)
        used.enable_padding(length=9)
        used.enable_truncation(1 if used is not model.tokenizer else 64)
        left = used.padding, used.truncation
        for side, own in zip((x, y), token_table(model, texts).embed(np.arange(4)), strict=True):
            np.testing.assert_array_equal(side, own)
        assert has_table(model)
        assert (used.padding, used.truncation) == left
    assert not has_table(SentenceTransformer(modules=[Normalize()], device="cpu"))
    assert not has_table(torch.nn.Linear(2, 2))
