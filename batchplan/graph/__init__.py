"""Embeddings -> neighbours, graphs, and orderings of graphs."""

from typing import TYPE_CHECKING

from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.graph.neighbors import Neighbors as Neighbors
    from batchplan.graph.neighbors import nearest_neighbors as nearest_neighbors

__getattr__, __dir__ = lazily(__name__, __file__)
