"""The bench for a card, rehearsed on the CPU with few rows and a small encoder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

pytest.importorskip("sentence_transformers")  # of the environment of frameworks

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import BertConfig, BertModel

from tests.benchmarks.finetune.domains import COLUMNS, Split
from tests.benchmarks.gpu import texts, training
from tests.benchmarks.gpu.__main__ import STAGES

ROOT = Path(__file__).parents[2]
WORDS, LENGTH = 200, 8


@pytest.fixture(scope="module")
def bert():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertModel(config)


@pytest.fixture(scope="module")
def folder(bert, tmp_path_factory):
    """What `texts` makes, of random words; those of 10,240 pairs cannot be read."""
    folder = tmp_path_factory.mktemp("texts")
    texts.write_weights(folder, bert)
    table = pa.table({name: [f"{name} {row}" for row in range(128)] for name in COLUMNS})
    texts.write_tokens(folder / f"{texts.LARGE}.npz", Split(table, table, table), words)
    (folder / f"{texts.SMALL}.npz").write_text("none")
    return folder


def words(some):
    """Random token numbers of texts, 0 for padding."""
    generator = np.random.default_rng(0)
    numbers = generator.integers(1, WORDS, (len(some), LENGTH))
    lengths = generator.integers(1, LENGTH + 1, (len(some), 1))
    return np.where(np.arange(LENGTH) < lengths, numbers, 0)


def test_the_encoder_is_bert_with_mean_pooling(bert, folder):
    with np.load(folder / training.WEIGHTS) as file:
        encoder = training.Encoder(dict(file))
    tokens = torch.from_numpy(words(range(10)))
    real = (tokens != 0).float()
    hidden = bert.half().float()(tokens, attention_mask=real).last_hidden_state
    mean = (hidden * real[:, :, None]).sum(1) / real.sum(1, keepdim=True)
    expected = torch.nn.functional.normalize(mean)
    torch.testing.assert_close(encoder(tokens), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("strength", [0.0, 9.0])
def test_the_loss_is_that_of_the_library(strength):
    torch.manual_seed(0)
    sides = [torch.randn(6, 5, requires_grad=True) for _ in range(2)]
    hardness = {"hardness_mode": "in_batch_negatives", "hardness_strength": strength}
    theirs = MultipleNegativesRankingLoss(
        SentenceTransformer(modules=[torch.nn.Identity()]), **hardness if strength else {}
    )
    found = [one(*sides) for one in (
        lambda *both: training.loss(*map(torch.nn.functional.normalize, both), strength),
        lambda x, y: theirs.compute_loss_from_embeddings([x, y], None),
    )]  # fmt: skip
    torch.testing.assert_close(*found)
    torch.testing.assert_close(*(torch.autograd.grad(loss, sides) for loss in found))


def call(out, *options, program=("-m", "tests.benchmarks.gpu")):
    """The status of the command, and the figures of each stage."""
    line = [sys.executable, *program, "--device", "cpu", "--out", str(out)]
    few = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [*line, *options], cwd=ROOT, env=os.environ | few, capture_output=True, text=True
    )
    stages = {}
    for one in map(json.loads, (out / "results.jsonl").read_text().splitlines()):
        assert one["figure"] in ran.stdout
        stages.setdefault(one["stage"], {})[one["figure"]] = one["value"]
    return ran.returncode, stages


def test_a_stage_that_fails_does_not_stop_the_next(tmp_path, folder):
    status, stages = call(tmp_path, "--scale", "0.001", "--texts", str(folder))
    assert list(stages) == ["machine", *STAGES]
    failed = {name: found["error"] for name, found in stages.items() if "error" in found}
    assert status == 1
    assert failed.keys() == {"training"}
    assert "pickled" in failed["training"]
    assert stages["tests"]["failed"] == 0
    assert stages["tests"]["passed"] + stages["tests"]["skipped"] > 10
    assert stages["gcbs"]["rows of 64 unlike brute force"] == 0
    assert stages["neighbors"]["recall of 64 rows, x of y"] > 0.999
    assert stages["partition"]["partition: seconds"] > 0
    for way in training.WAYS:
        assert stages["training-large"][f"{way}: time over that of shuffled batches"] > 0
        assert 0 <= stages["training-large"][f"{way}: nDCG@10"] <= 100


def test_a_stage_ends_at_its_limit(tmp_path):
    short = "from tests.benchmarks.gpu import __main__ as bench; bench.STAGES['gcbs'] = 0.3"
    program = "-c", f"{short}; bench.main()"
    status, stages = call(tmp_path, "--scale", "0.1", "gcbs", program=program)
    assert status == 1
    assert stages["gcbs"]["error"] == "not done after 0.3 s"
    assert 0.3 <= stages["gcbs"]["seconds of the stage"] < 5
