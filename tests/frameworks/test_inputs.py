"""Embeddings as other libraries write and hold them."""

from __future__ import annotations

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import save_file as save_tensors
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses

from batchplan import Embeddings, InputError, load_embeddings, mine_negatives, plan
from batchplan.data.shards import find_shards
from batchplan.materialize import materialize

from .texts import ROWS, load_model, pairs, save_model

X = np.random.default_rng(0).standard_normal((1205, 6)).astype(np.float32)
Y = X[:, ::-1].copy()
HALF = torch.from_numpy(X).to(torch.bfloat16)


def same(data, *sides):
    assert data.fingerprint == load_embeddings(*sides).fingerprint


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_safetensors_of_torch(tmp_path, dtype):
    sides = [torch.from_numpy(rows).to(dtype) for rows in (X, Y)]
    for names in (("x", "y"), ("anchor", "positive")):
        tensors = dict(zip(names, sides, strict=True))
        scale = torch.tensor(20.0)
        save_tensors({**tensors, "scale": scale}, tmp_path / "a.safetensors", {"by": "a model"})
        same(load_embeddings(tmp_path / "a.safetensors"), *sides)


def test_safetensors_of_numpy(tmp_path):
    save_arrays({"rows": X}, tmp_path / "a.safetensors")
    same(load_embeddings(tmp_path / "a.safetensors"), X)


@pytest.mark.parametrize("length", [None, 6])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("shards", [1, 3])
def test_data_sets_on_disk(tmp_path, length, dtype, shards):
    vectors = datasets.List(datasets.Value(dtype), **({"length": length} if length else {}))
    features = datasets.Features({"text": datasets.Value("string"), "x": vectors, "y": vectors})
    rows = {"text": ["t"] * 1205, "x": X.astype(dtype), "y": Y.astype(dtype)}
    dataset = datasets.Dataset.from_dict(rows, features=features)
    dataset.save_to_disk(tmp_path / "whole", num_shards=shards)
    same(load_embeddings(tmp_path / "whole"), X.astype(dtype), Y.astype(dtype))
    chosen = np.random.default_rng(1).permutation(1205)[:700]
    dataset.select(chosen).save_to_disk(tmp_path / "some")
    same(load_embeddings(tmp_path / "some"), X.astype(dtype)[chosen], Y.astype(dtype)[chosen])
    datasets.DatasetDict({"train": dataset}).save_to_disk(tmp_path / "splits")
    with pytest.raises(InputError, match="several splits, train; name one"):
        load_embeddings(tmp_path / "splits")
    same(load_embeddings(tmp_path / "splits" / "train"), X.astype(dtype), Y.astype(dtype))


def test_columns_of_datasets():
    features = datasets.Features({"x": datasets.List(datasets.Value("float32")),
                                  "t": datasets.Value("string")})  # fmt: skip
    dataset = datasets.Dataset.from_dict({"x": X, "t": ["a"] * 1205}, features=features)
    for one in (dataset, dataset.with_format("torch"), dataset.with_format("numpy")):
        same(load_embeddings(one["x"]), X)
    same(load_embeddings(dataset.with_format("arrow")["x"]), X)
    same(load_embeddings(dataset.select(range(100, 9, -1))["x"]), X[100:9:-1])
    same(load_embeddings(dataset["x"], dataset["x"]), X, X)
    short = dataset.with_transform(lambda rows: {"x": [row[:2] for row in rows["x"]]})
    same(load_embeddings(short["x"]), X[:, :2])
    with pytest.raises(InputError, match="got a column of string, expected lists of float"):
        load_embeddings(dataset["t"])


def test_columns_of_pandas():
    frame = pd.DataFrame({"x": list(X), "y": list(Y)})
    same(load_embeddings(frame["x"], frame["y"]), X, Y)
    same(Embeddings.from_arrays(frame["x"]), X)
    same(load_embeddings(pd.DataFrame(X)), X)
    order = frame.sample(frac=1, random_state=0).index
    same(load_embeddings(frame["x"].loc[order]), X[order])
    with pytest.raises(InputError, match="of a table pass a column of vectors"):
        load_embeddings(frame)
    same(load_embeddings(pd.Series(X.tolist())), X)


def test_columns_of_polars():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"x": X, "y": Y})
    same(load_embeddings(frame["x"], frame["y"]), X, Y)
    same(load_embeddings(frame["x"].cast(polars.List(polars.Float32))), X)
    same(load_embeddings(frame["x"].gather(np.arange(100, 9, -1))), X[100:9:-1])
    same(load_embeddings(polars.concat([frame, frame], rechunk=False)["x"]), np.vstack([X, X]))
    same(load_embeddings(polars.DataFrame(X)), X)
    with pytest.raises(InputError, match="of a table pass a column of vectors"):
        load_embeddings(frame)


def test_bfloat16_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    same(load_embeddings(X.astype(ml_dtypes.bfloat16)), HALF.float().numpy())


@pytest.mark.parametrize("layout", ["n-tuple", "triplet"])
def test_tuples_of_negatives_are_trained_on(tmp_path, layout):
    """A step on what `materialize` writes, as it is loaded."""
    texts = pairs()
    texts.to_parquet(tmp_path / "texts.parquet")
    rows = np.random.default_rng(0).standard_normal((ROWS, 4)).astype(np.float32)
    data = load_embeddings(rows, rows + 1)
    table = mine_negatives(data, planner="scns", per_row=2, top_k=5, batch_size=4)
    options = {"format": "arrow", "layout": layout}
    materialize(table, tmp_path / "texts.parquet", tmp_path / "out", **options)
    dataset = datasets.load_from_disk(tmp_path / "out")
    many = layout == "n-tuple"
    names = ["negative_1", "negative_2"] if many else ["negative"]
    assert dataset.column_names == ["anchor", "positive", *names]
    assert dataset["anchor"][: ROWS if many else 2] == (
        texts["anchor"][:] if many else ["x0", "x0"]
    )
    save_model(tmp_path / "model")
    model = load_model(tmp_path / "model")
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path / "run"), max_steps=1, per_device_train_batch_size=4, use_cpu=True,
        report_to="none", save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    loss = losses.MultipleNegativesRankingLoss(model)
    trainer = SentenceTransformerTrainer(model, arguments, dataset, loss=loss)
    assert trainer.train().training_loss > 0


def test_embeddings_of_shards_as_load_dataset_reads_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tx").mkdir()
    for number in range(12):
        rows = range(25 * number, 25 * number + 25)
        pd.DataFrame({"row": rows}).to_parquet(f"tx/part-{number}.parquet")
    read = datasets.load_dataset(
        "parquet", data_files="tx/*.parquet", split="train", cache_dir="cache"
    )["row"]
    vectors = np.random.default_rng(0).standard_normal((300, 6)).astype(np.float32)
    planned = plan(vectors, planner="random", batch_size=50)
    with pytest.raises(InputError, match=r"part-10\.parquet comes before tx/part-2\.parquet"):
        materialize(planned, "tx", "out")
    materialize(planned, "tx", "out", shard_order="lexicographic")
    written = pd.read_parquet("out")
    assert written["row"].tolist() == np.array(read)[written["batchplan_row"]].tolist()
    assert written["batchplan_row"].tolist() == planned.rows.tolist()
    # Nested folders too: its order is that of whole paths.
    (tmp_path / "tx" / "part").mkdir()
    pd.DataFrame({"row": [300]}).to_parquet("tx/part/0.parquet")
    read = datasets.load_dataset(
        "parquet", data_files="tx/**/*.parquet", split="train", cache_dir="cache"
    )["row"]
    order = find_shards("tx/**/*.parquet", "x", "lexicographic")
    assert read[:] == [row for path in order for row in pd.read_parquet(path)["row"]]
