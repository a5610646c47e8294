"""The command `embed` where its package is missing; tests/frameworks runs it with a model."""

import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def words(folder):
    pq.write_table(pa.table({"anchor": ["a", "b"], "positive": ["c", "d"]}), "data.parquet")
    return ["embed", "model", "data.parquet", "--columns", "anchor,positive", "-o", "pairs"]


def test_a_missing_package_is_named(words, refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    monkeypatch.delitem(sys.modules, "batchplan.embedding.encoder", raising=False)
    extra = "'batchplanner[sentence-transformers]'"
    says = [f"sentence_transformers: is not installed; run pip install {extra}"]
    refused(*words, parts=says, code=4)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    monkeypatch.delitem(sys.modules, "batchplan.embedding.tokens", raising=False)
    says = [f"tokenizers: is not installed; run pip install {extra}"]
    refused("plan", "data.parquet", "--model", "model", "-b", 2, parts=says, code=4)


def test_what_needs_no_package_is_checked_first(words, refused, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    refused(*words[:-1], "no/pairs", parts=["folder", "no does not exist"])
    refused(*words[:-1], "data.parquet", "-f", parts=["would overwrite"])
    refused(*words, "--prompt", "query", parts=["prompt: got 1, expected 2"], code=2)
    refused(*words, "--device", "tpu", parts=["device: got 'tpu'"], code=2)
    assert run(*words[:-2]).exit_code == 2
    assert run(*words[:3], *words[-2:]).exit_code == 2
