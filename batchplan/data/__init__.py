"""Shards on disk to `Embeddings`: NPY and Parquet, folder layouts, validation, fingerprint."""

from batchplan.data.describe import Description, describe
from batchplan.data.embeddings import Embeddings
from batchplan.data.labels import labels_from, load_labels
from batchplan.data.load import load_embeddings
from batchplan.data.matrix import RowMatrix, Shard

__all__ = [
    "Description",
    "Embeddings",
    "RowMatrix",
    "Shard",
    "describe",
    "labels_from",
    "load_embeddings",
    "load_labels",
]
