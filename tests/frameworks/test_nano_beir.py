"""The benchmark scores encoders on data sets in the layout of NanoBEIR."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import config
from sentence_transformers.sentence_transformer.evaluation.nano_beir import (
    DATASET_NAME_TO_HUMAN_READABLE,
)

from tests.benchmarks.finetune.scores import nano_beir

from .texts import load_model, save_model

TEXTS = 12
NAMES = [f"Nano{name}" for name in DATASET_NAME_TO_HUMAN_READABLE.values()]


@pytest.fixture
def dataset(tmp_path):
    """13 data sets, whose queries are the texts of the corpus. Texts differ in their last word."""
    texts = [f"{'x0 ' * 9}y{row}" for row in range(TEXTS)]
    ids = [str(row) for row in range(TEXTS)]
    tables = {
        "corpus": {"_id": ids, "text": texts},
        "queries": {"_id": ids, "text": texts},
        "qrels": {"query-id": ids, "corpus-id": ids},
    }
    for kind, columns in tables.items():
        (tmp_path / kind).mkdir()
        for name in NAMES:
            pq.write_table(pa.table(columns), tmp_path / kind / f"{name}.parquet")
    configs = [
        {"config_name": kind, "data_files": [{"split": name, "path": f"{kind}/{name}.parquet"}
                                             for name in NAMES]}
        for kind in tables
    ]  # fmt: skip
    (tmp_path / "README.md").write_text(f"---\n{json.dumps({'configs': configs})}\n---\n")
    return str(tmp_path)


def test_texts_are_read_beyond_what_the_training_reads(dataset, tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("model")
    monkeypatch.setattr(config, "HF_DATASETS_CACHE", folder / "cache")
    save_model(folder)
    encoder = load_model(folder)
    encoder.max_seq_length = 8
    assert len(NAMES) == 13
    assert nano_beir(encoder, dataset, tokens=16) == pytest.approx(100)
    assert encoder.max_seq_length == 8
    assert nano_beir(encoder, dataset, tokens=8) < 60  # all texts are the same
