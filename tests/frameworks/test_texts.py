"""`plan` on tables of texts, by the token vectors of a model and by the whole model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from typer.testing import CliRunner

import batchplan
from batchplan import InputError, Plan, load_embeddings
from batchplan.cli.app import app
from batchplan.embedding.table import token_table
from batchplan.training import PlanBatchSampler

from .texts import load_model, save_model

ROWS = 96
PLAN = ("plan", "pairs.parquet", "--model", "model", "-b", "8")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working directory with ``model`` and ``pairs.parquet``: texts of some words each."""
    monkeypatch.chdir(tmp_path)
    save_model("base", ROWS)
    load_model("base").save("model")
    pq.write_table(pa.table(columns()), "pairs.parquet")


def columns():
    draw = np.random.default_rng(0)
    words = draw.integers(0, 30, (ROWS, 4))
    return {
        "id": [f"n{row}" for row in range(ROWS)],
        "question": [" ".join(f"x{word}" for word in row) for row in words],
        "answer": [" ".join(f"x{word}" for word in row[:3]) + " y1" for row in words],
        "topic": [f"topic {row % 40}" for row in range(ROWS)],
    }


def run(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def sides(folder="plan.vectors"):
    embeddings = load_embeddings(folder)
    return [side.rows(0, ROWS) for side in (embeddings.x, embeddings.y)]


def expected():
    texts = columns()
    model = SentenceTransformer("model", device="cpu")
    parts = [[texts[name]] for name in ("question", "answer")]
    return token_table(model, parts).embed(np.arange(ROWS))


def test_texts_become_a_plan_that_is_checked_against_its_vectors():
    said = run(*PLAN)
    assert "vectors      plan.vectors\n" in said.stderr
    spent = json.loads(run(*PLAN, "-o", "timed.npy", "--json").stdout)["seconds"]
    assert {"tokenize", "embed", "read", "write"} <= spent.keys()
    for side, own in zip(sides(), expected(), strict=True):
        np.testing.assert_array_equal(side, own)
    data = load_embeddings("plan.vectors")
    assert data.ids.to_pylist() == columns()["id"]
    plan = Plan.load("plan.npy")
    assert plan.metadata.fingerprint == data.fingerprint
    assert sorted(plan.rows) == list(range(ROWS))
    assert "verdict" in run("evaluate", "plan.npy", "plan.vectors").stdout
    run("check", "plan.npy", "plan.vectors", "--fail-under", "hardness=0.01")
    run("report", "plan.npy", "plan.vectors", "-q")
    page = Path("report.html").read_text()
    assert any(text in page for text in columns()["question"])
    full = next(
        line for line in said.stderr.splitlines() if line.startswith("full command: batchplan ")
    )
    before = Path("plan.npy").read_bytes()
    run(*full.split()[3:], "--force")
    assert Path("plan.npy").read_bytes() == before


def test_columns_of_ids_are_no_texts_and_a_choice_is_named():
    assert "note: texts: the columns question and answer; name others" in run(*PLAN).stderr
    texts = columns()
    names = {"query_id": "id", "question": "question", "corpus-id": "id", "answer": "answer"}
    pq.write_table(pa.table({name: texts[own] for name, own in names.items()}), "pairs.parquet")
    assert "note: texts" not in run(*PLAN, "-f").stderr
    for side, own in zip(sides(), expected(), strict=True):
        np.testing.assert_array_equal(side, own)


def test_texts_in_dictionaries():
    kind = pa.dictionary(pa.int32(), pa.string())
    texts = {name: pa.array(own) for name, own in columns().items() if name != "topic"}
    coded = {name: own.cast(kind) if name != "id" else own for name, own in texts.items()}
    pq.write_table(pa.table(coded), "pairs.parquet")
    run(*PLAN, "-q")
    for side, own in zip(sides(), expected(), strict=True):
        np.testing.assert_array_equal(side, own)
    one, other = (batchplan.token_embeddings("model", pa.table(own)) for own in (coded, texts))
    assert one.fingerprint == other.fingerprint


def test_only_the_tokenizer_and_the_table_are_loaded():
    """Neither library that runs models is imported."""
    code = (
        "import sys; sys.modules.update(sentence_transformers=None, transformers=None); "
        "from batchplan.__main__ import main; main()"
    )
    words = [sys.executable, "-c", code, *PLAN, "-q"]
    path = os.pathsep.join(filter(None, sys.path))
    subprocess.run(words, check=True, env={**os.environ, "PYTHONPATH": path})
    for side, own in zip(sides(), expected(), strict=True):
        np.testing.assert_array_equal(side, own)


def test_a_model_in_other_formats_is_loaded_as_a_whole():
    run(*PLAN)
    Path("model/tokenizer.json").rename("model/elsewhere.json")
    Path("model/vocab.txt").write_text(
        "\n".join(json.loads(Path("model/elsewhere.json").read_text())["model"]["vocab"])
    )
    Path("model/tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_basic_tokenize": False})
    )
    run(*PLAN, "-o", "other.npy")
    for side, own in zip(sides("other.vectors"), sides(), strict=True):
        np.testing.assert_array_equal(side, own)


def test_vectors_are_kept_while_nothing_changes():
    run(*PLAN)
    shard = Path("plan.vectors/shard-000000.parquet")
    first = shard.stat().st_mtime_ns
    run(*PLAN, "--force", "--seed", 1)
    assert shard.stat().st_mtime_ns == first
    changed = columns()
    changed["question"][0] = "x1"
    pq.write_table(pa.table(changed), "pairs.parquet")
    assert "plan.npy: exists already" in run(*PLAN, code=3).stderr
    assert "plan.vectors: exists already" in run(*PLAN, "-o", "plan.npz", code=3).stderr
    run(*PLAN, "--force")
    assert shard.stat().st_mtime_ns > first


def test_the_whole_model():
    run(*PLAN, "--embed")
    run("embed", "model", "pairs.parquet", "--columns", "question,answer", "-o", "whole")
    for side, own in zip(sides(), sides("whole"), strict=True):
        np.testing.assert_array_equal(side, own)
    run("evaluate", "plan.npy", "whole", "-q")
    run(*PLAN, "-o", "tokens.npy")
    said = run("evaluate", "tokens.npy", "whole", code=3).stderr
    assert "made for data with fingerprint" in said


def test_the_table_by_its_own_command():
    run(*PLAN)
    run("embed", "model", "pairs.parquet", "--columns", "question,answer", "-o", "v", "--table")
    assert load_embeddings("v").fingerprint == load_embeddings("plan.vectors").fingerprint
    assert pq.read_schema("v/shard-000000.parquet").names == ["id", "question", "answer"]


@pytest.mark.parametrize("whole", [False, True])
def test_a_model_of_the_hub_without_a_network(whole):
    """The library of the Hub would try again for minutes."""
    environment = {
        **os.environ, "HF_HUB_OFFLINE": "0", "HF_HUB_CACHE": os.path.abspath("hub"),
        "HF_ENDPOINT": "http://127.0.0.1:1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }  # fmt: skip
    words = [sys.executable, "-m", "batchplan", *PLAN[:3], "user/small", "-b", "8", "-q"]
    words += ["--embed"] * whole

    def refusal():
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        assert "Retrying" not in done.stderr
        return done.returncode, done.stderr

    code, said = refusal()
    assert (code, len(said.splitlines())) == (3, 1)
    assert "user/small: no such folder, and the Hub cannot be reached at http://127.0.0.1:1" in said
    assert "run hf download user/small" in said
    shutil.copytree("model", f"hub/models--user--small/snapshots/{'a' * 40}")
    Path("hub/models--user--small/refs").mkdir()
    Path("hub/models--user--small/refs/main").write_text("a" * 40)
    assert refusal() == (0, "")
    made = Path("plan.npy").read_bytes()
    run(*PLAN, *["--embed"] * whole, "-o", "own.npy", "-q")
    assert Path("own.npy").read_bytes() == made


def test_columns_negatives_and_labels():
    texts = columns()
    hard = texts["answer"][1:] + texts["answer"][:1]
    pq.write_table(pa.table({**texts, "negative": hard, "other": hard}), "pairs.parquet")
    named = ["--x-column", "question", "--y-column", "other"]
    run(*PLAN, *named, "--group-column", "topic", "-q")
    data = load_embeddings("plan.vectors")
    assert len(data.negatives) == 1
    np.testing.assert_array_equal(data.negatives[0].rows(0, ROWS), data.y.rows(0, ROWS))
    plan = Plan.load("plan.npy")
    for batch in plan.batches():
        topics = [texts["topic"][row] for row in batch]
        assert len({*topics}) == len(topics)
    run(*PLAN, "--negatives", "none", "-o", "pairs.npy", "-q")
    assert not load_embeddings("pairs.vectors").negatives
    assert "name both" in run(*PLAN, *named[2:], "-o", "x.npy", code=2).stderr
    run(*PLAN, "--single", "-o", "single.npy", "-q")
    assert not load_embeddings("single.vectors", single=True).paired


def length_in_its_own_file(folder):
    """As folders of before version 6, which has precedence."""
    config, value = folder / "sentence_bert_config.json", {"max_seq_length": 3}
    config.write_text(json.dumps(json.loads(config.read_text()) | value))


def length_of_its_positions(folder):
    """A tokenizer without a limit."""
    tokenizer, config = folder / "tokenizer_config.json", folder / "config.json"
    tokenizer.write_text(tokenizer.read_text().replace('"model_max_length": 16,', ""))
    config.write_text(config.read_text().replace('_embeddings": 16', '_embeddings": 3'))
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if name.endswith("position_embeddings.weight"))
    save_file({**weights, name: weights[name][:3].clone()}, folder / "model.safetensors")


def a_tokenizer_that_cuts(folder):
    """Which is left by an earlier call, and is not the length of the model."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(2)
    tokenizer.save(str(folder / "tokenizer.json"))


def lower_case(folder):
    config = folder / "sentence_bert_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"do_lower_case": True}))


@pytest.mark.parametrize(
    "change",
    [None, length_in_its_own_file, length_of_its_positions, a_tokenizer_that_cuts, lower_case],
)
def test_a_folder_has_the_tokens_of_the_loaded_model(change):
    model = SentenceTransformer("model", device="cpu")
    if change is None:
        model.max_seq_length = 3
        model.save("model")
    else:
        change(Path("model"))
    texts = columns()
    texts["answer"] = [text.upper() for text in texts["answer"]]
    loaded = SentenceTransformer("model", device="cpu")
    one, other = (batchplan.token_embeddings(own, pa.table(texts)) for own in ("model", loaded))
    assert one.fingerprint == other.fingerprint


def test_another_length_makes_other_vectors():
    run(*PLAN, "-q")
    model = SentenceTransformer("model", device="cpu")
    model.max_seq_length = 3
    model.save("model")
    assert "plan.vectors: exists already" in run(*PLAN, "-o", "plan.npz", code=3).stderr


@pytest.mark.parametrize("whole", [False, True])
def test_what_the_plan_would_refuse_is_refused_before_texts_are_embedded(whole):
    texts = pa.table(columns())
    Path("parts").mkdir()
    pq.write_table(texts[:50], "parts/0.parquet")
    pq.write_table(texts[50:], "parts/1.parquet")
    Path("pairs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in texts.to_pylist()))
    pq.write_table(texts[:50], "short.parquet")
    topics, ids = ["--group-column", "topic"], ["--anchor-id", "id"]
    files = ["parts/0.parquet", "parts/1.parquet"]
    one = "are read from one Parquet or Arrow file; write the texts as one"
    whole_rows = ["--label-table", "pairs.parquet"]
    for data, words, part in (
        (["parts"], topics, f"parts: columns of groups and ids {one}"),
        (["parts/*"], ids, one),
        (files, topics, f"parts/0.parquet: columns of groups and ids {one}"),
        (["pairs.jsonl"], topics, one),
        (["pairs.parquet"], ["--group-column", "tpic"], "column 'tpic': there is no such column"),
        (["pairs.parquet"], ["--anchor-id", "ib"], "column 'ib': there is no such column"),
        (["pairs.parquet"], [*topics, "--label-table", "short.parquet"], "got 50 values"),
        (["pairs.parquet"], ["-b", 97], "batch size: got 97, expected at most the 96 rows"),
        (["pairs.parquet"], ["--memory", "lots"], "memory: got 'lots'"),
        (["pairs.parquet"], [*topics, *whole_rows, "-o", "pairs.parquet", "-f"], "overwrite"),
    ):
        options = [*PLAN[2:], *["--embed"] * whole, *words]
        code = 2 if "--memory" in words else 3
        assert part in run("plan", *data, *options, code=code).stderr
        assert not [*Path().glob("*.vectors*")]
    run("plan", "parts", *PLAN[2:], *topics, *whole_rows, "-q")
    assert sorted(Plan.load("plan.npy").rows) == list(range(ROWS))


def test_tokens_without_a_vector_are_refused():
    """As of a tokenizer to which words were added, or of another model."""
    file = Path("model/tokenizer.json")
    document = json.loads(file.read_text())
    document["model"]["vocab"]["y1"] += 500
    file.write_text(json.dumps(document))
    said = run(*PLAN, code=3).stderr
    assert "gives token 603, which has no finite vector among the 198 of its table" in said
    assert "save the model with its own tokenizer" in said
    assert not [*Path().glob("plan*")]


def save_tokens(change):
    """Change the table of tokens of ``model``."""
    model = SentenceTransformer("model", device="cpu")
    change(model[0].auto_model.embeddings.word_embeddings.weight.data)
    model.save("model")


def test_the_advice_about_vectors_beyond_float16_works():
    save_tokens(lambda table: table.mul_(1e8))
    embed = "embed", "model", "pairs.parquet", "--columns", "question,answer", "-o"
    for words in (PLAN, (*embed, "table", "--table")):
        said = run(*words, code=3).stderr
        assert "Warning" not in said
        assert "run batchplan embed with --normalize and without --table, or take another" in said
    with pytest.raises(InputError, match="NaN"):
        batchplan.token_embeddings("model", pa.table(columns()))
    run(*embed, "whole", "--normalize")


def test_a_table_with_nan_is_refused():
    save_tokens(lambda table: table[103].fill_(float("nan")))
    assert "gives token 103, which has no finite vector" in run(*PLAN, code=3).stderr
    assert not [*Path().glob("plan*")]


def test_in_python():
    run(*PLAN, "-q")
    texts = columns()
    made = Plan.load("plan.npy")
    upper = {name: [text.upper() for text in own] for name, own in texts.items()}
    made_lower = Dataset.from_dict(upper).with_transform(
        lambda rows: {name: [text.lower() for text in own] for name, own in rows.items()}
    )
    assert made_lower[:] == texts
    for dataset in (Dataset.from_dict(texts), pa.table(texts), made_lower):
        for model in ("model", SentenceTransformer("model", device="cpu")):
            data = batchplan.token_embeddings(model, dataset)
            assert data.fingerprint == made.metadata.fingerprint
    plan = batchplan.plan(Dataset.from_dict(texts), model="model", batch_size=8)
    assert np.array_equal(plan.rows, made.rows)
    assert batchplan.evaluate(plan, data).loss_train > 0
    assert len(list(PlanBatchSampler(plan))) == ROWS // 8


def test_nulls_in_a_dictionary_are_refused():
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["x1", None]))
    with pytest.raises(InputError, match="column 'anchor' has 1 rows without text"):
        batchplan.token_embeddings("model", pa.table({"anchor": values, "positive": ["y1", "y2"]}))


def test_refusals():
    said = run("plan", "pairs.parquet", code=3).stderr
    assert len(said.splitlines()) == 1
    assert "got texts (question, answer, topic)" in said
    assert "--model NAME" in said
    assert "--embed" in said
    assert "given without --model" in run("plan", "pairs.parquet", "--embed", code=2).stderr
    said = run(*PLAN, "--pair", "pairs.parquet", code=2).stderr
    assert "give one table with all texts" in said
    said = run("plan", "pairs.parquet", "--model", "none/such", code=3).stderr
    assert "none/such: no such folder, and the Hub cannot be reached" in said
    said = run("plan", "pairs.parquet", "--model", "./such", code=3).stderr
    assert "./such: no such folder, nor a name on the Hub; check the path" in said
    said = run(*PLAN, "-o", "-", "--json", code=2).stderr
    assert "choose one" in said
    assert not Path("-.vectors").exists()
    assert not Path("plan.vectors").exists()
    config = Path("model/config.json")
    config.write_text(config.read_text().replace('"hidden_size": 16', '"hidden_size": "many"'))
    said = run(*PLAN, "--embed", code=3).stderr.splitlines()[1:]  # after the note
    assert len(said) == 1
    assert "'hidden_size' expected int, got str" in said[0]
    assert not Path("plan.npy").exists()
    texts = pa.table(columns())
    for dataset, part in (
        (texts.select(["id"]), "got the columns id, expected texts"),
        (texts.to_pylist(), "got a list with a model, expected a table of texts"),
        (texts.set_column(1, "question", pa.array([None] * ROWS, "string")), "96 rows without"),
    ):
        with pytest.raises(InputError, match=part):
            batchplan.plan(dataset, model="model")
    with pytest.raises(InputError, match="model: got a Linear, expected a model with a tokenizer"):
        batchplan.plan(texts, model=torch.nn.Linear(2, 2))
