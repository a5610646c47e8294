"""Shards on disk to `Embeddings`: NPY and Parquet, folder layouts, validation, fingerprint."""

from batchplan.data.embeddings import Embeddings
from batchplan.data.load import load_embeddings
from batchplan.data.matrix import RowMatrix, Shard

__all__ = ["Embeddings", "RowMatrix", "Shard", "load_embeddings"]
