"""Shards on disk, or values in memory, to `Embeddings`: formats, layouts, checks, fingerprint."""

from typing import TYPE_CHECKING

from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.data.candidates import Candidates as Candidates
    from batchplan.data.candidates import Data as Data
    from batchplan.data.embeddings import Embeddings as Embeddings
    from batchplan.data.labels import labels_from as labels_from
    from batchplan.data.labels import load_labels as load_labels
    from batchplan.data.load import load_embeddings as load_embeddings
    from batchplan.data.matrix import RowMatrix as RowMatrix
    from batchplan.data.matrix import Shard as Shard

__getattr__, __dir__ = lazily(__name__, __file__)
