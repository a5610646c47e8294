"""The command `embed` with a small random model, as a user runs it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from typer.testing import CliRunner

from batchplan import InputError, load_embeddings
from batchplan.cli.app import app
from batchplan.embedding import EmbedOptions, SentenceEncoder
from tests.cli.test_help import examples

from .texts import PROMPTS, ROWS, load_model, pairs, save_model


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working directory with ``model`` and ``data.parquet``."""
    monkeypatch.chdir(tmp_path)
    save_model("base")
    model = load_model("base")
    model.prompts = dict(zip(("query", "document"), (f"{one} " for one in PROMPTS), strict=True))
    model.save("model")
    numbers = [f"n{row}" for row in range(ROWS)]
    pairs().add_column("id", numbers).to_parquet("data.parquet")


WORDS = [
    *("embed", "model", "data.parquet", "--columns", "anchor,positive"),
    *("--shard-rows", "2", "--batch-size", "4"),
]


def run(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def sides(folder):
    embeddings = load_embeddings(folder)
    return [side.rows(0, ROWS) for side in (embeddings.x, embeddings.y)]


def test_the_example(monkeypatch):
    (line,) = examples("embed")
    done = run(*line.split()[1:])
    assert done.exit_code == 0, done.output
    assert f"{ROWS}, anchor, positive of 16 dimensions" in done.stderr
    model = SentenceTransformer("model", device="cpu")
    for side, name in zip(sides("pairs"), ("anchor", "positive"), strict=True):
        assert side.dtype == np.float16
        np.testing.assert_allclose(side, model.encode(list(pairs()[name])), atol=4e-3)
    assert load_embeddings("pairs").ids.to_pylist() == [f"n{row}" for row in range(ROWS)]
    planned = run("gcbs", "pairs", "-b", 8, "-q")
    assert planned.exit_code == 0, planned.output


def test_summaries():
    quiet = run(*WORDS, "-o", "quiet", "-q")
    assert (quiet.exit_code, quiet.output) == (0, "")
    document = json.loads(run(*WORDS, "-o", "pairs", "--json").stdout)
    assert (document["dimensions"], document["shards"], document["kept"]) == (16, 24, 0)
    assert document["rows"] == ROWS
    assert "exists already" in run(*WORDS, "-o", "pairs").stderr


def test_prompts():
    model = SentenceTransformer("model", device="cpu")
    named = ["--prompt", "query", "--prompt", "document"]
    texts = ["--prompt-text", "ask: ", "--prompt-text", "say: "]
    for number, words in enumerate((named, texts)):
        run(*WORDS, *words, "--normalize", "-o", number)
        for side, name, prompt in zip(
            sides(str(number)), ("anchor", "positive"), ("query", "document"), strict=True
        ):
            expected = model.encode(
                list(pairs()[name]), prompt_name=prompt, normalize_embeddings=True
            )
            plain = model.encode(list(pairs()[name]), normalize_embeddings=True)
            np.testing.assert_allclose(side, expected, atol=2e-3)
            assert abs(side - plain).max() > 0.1
    run(*WORDS, "--prompt", "", "--prompt", "document", "-o", "half")
    run(*WORDS, "-o", "none")
    assert np.array_equal(sides("half")[0], sides("none")[0])
    assert not np.array_equal(sides("half")[1], sides("none")[1])


def test_killed_in_the_middle_it_goes_on():
    pairs(500).to_parquet("data.parquet")
    assert run(*WORDS, "-o", "whole").exit_code == 0
    partial = Path("pairs.partial")
    process = subprocess.Popen(
        [sys.executable, "-m", "batchplan", *WORDS, "-o", "pairs"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len(list(partial.glob("shard-*"))) < 3:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not Path("pairs").exists()
    finished = len(list(partial.glob("shard-*")))
    document = json.loads(run(*WORDS, "-o", "pairs", "--json").stdout)
    assert 3 <= finished == document["kept"] < document["shards"]
    assert sorted(os.listdir("pairs")) == sorted(os.listdir("whole"))
    for name in os.listdir("pairs"):
        assert Path("pairs", name).read_bytes() == Path("whole", name).read_bytes()


def test_another_model_does_not_go_on():
    """The same name, and other weights or settings."""
    encoder = SentenceEncoder("model", EmbedOptions(columns="anchor"))
    again = SentenceEncoder("model", EmbedOptions(columns="anchor"))
    assert again.facts == encoder.facts
    changed = SentenceTransformer("model", device="cpu")
    changed.max_seq_length = 7
    changed.save("model")
    shorter = SentenceEncoder("model", EmbedOptions(columns="anchor"))
    assert shorter.facts["weights"] != encoder.facts["weights"]
    for file, change in (
        ("config_sentence_transformers.json", {"default_prompt_name": "query"}),
        ("config.json", {"num_attention_heads": 4}),
        ("tokenizer.json", {"normalizer": {"type": "Lowercase"}}),
    ):
        path = Path("model", file)
        before = path.read_text()
        path.write_text(json.dumps(json.loads(before) | change))
        said = SentenceEncoder("model", EmbedOptions(columns="anchor"))
        assert said.facts["weights"] != shorter.facts["weights"], file
        path.write_text(before)
    shutil.copytree("model", "copy")
    copy = SentenceEncoder("copy", EmbedOptions(columns="anchor"))
    assert copy.facts["weights"] == shorter.facts["weights"]
    next(changed.parameters()).data[0, 0] += 1
    changed.save("model")
    other = SentenceEncoder("model", EmbedOptions(columns="anchor"))
    assert other.facts["weights"] not in (encoder.facts["weights"], shorter.facts["weights"])


def test_refusals():
    said = run(*WORDS, "--prompt", "qery", "--prompt", "document", "-o", "pairs")
    assert (said.exit_code, len(said.stderr.splitlines())) == (3, 1)
    assert "got 'qery', but model has query, document; name one of them" in said.stderr
    with pytest.raises(InputError, match="nothing/at/all: no such folder, nor a name on the Hub"):
        SentenceEncoder("nothing/at/all", EmbedOptions(columns="anchor"))
    said = run("embed", "model", *WORDS[2:], "-o", "model/pairs")
    assert "would overwrite or join the input model" in said.stderr
    Dataset.from_dict({"anchor": [1], "positive": ["a"]}).to_parquet("numbers.parquet")
    said = run("embed", "model", "numbers.parquet", *WORDS[3:], "-o", "pairs")
    assert "column 'anchor' is int64, expected texts" in said.stderr
    assert not Path("pairs.partial").exists()


@pytest.mark.parametrize("default", [None, "document"])
def test_a_model_with_a_route_for_each_task(default):
    """All columns would take the default one, if there is one."""
    texts = load_model("base")
    router = Router({"query": [*texts], "document": [*deepcopy(texts)]}, default, False)
    SentenceTransformer(modules=[router]).save("routes")
    said = run("embed", "routes", *WORDS[2:], "-o", "pairs")
    assert (said.exit_code, len(said.stderr.splitlines())) == (3, 1)
    assert "routes, which embeds queries and documents in two ways; name the way" in said.stderr
    assert not Path("pairs.partial").exists()
    said = run("plan", "data.parquet", "--model", "routes", "--embed", "-b", 8)
    assert (said.exit_code, len(said.stderr.splitlines())) == (3, 1)
    assert not Path("plan.vectors").exists()
    advice = said.stderr.split("of each column: batchplan ")[1].split(", then batchplan ")
    assert advice[0].endswith(
        "--columns anchor,positive --prompt query --prompt document -o VECTORS"
    )
    for words in advice:
        words = words.replace("TEXTS", "data.parquet").replace("VECTORS", "pairs").split()
        assert not run(*words, *["-b", 8] * (words[0] == "plan")).exit_code
