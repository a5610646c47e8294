"""Shards on disk to `Embeddings`: NPY and Parquet, folder layouts, validation, fingerprint."""

from batchplan.data.describe import Description, describe
from batchplan.data.embeddings import Embeddings
from batchplan.data.load import load_embeddings
from batchplan.data.matrix import RowMatrix, Shard

__all__ = ["Description", "Embeddings", "RowMatrix", "Shard", "describe", "load_embeddings"]
