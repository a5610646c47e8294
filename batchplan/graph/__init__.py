"""Embeddings -> neighbours, graphs, and orderings of graphs."""

from typing import TYPE_CHECKING

from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.graph.construction import build_graph as build_graph
    from batchplan.graph.neighbors import Neighbors as Neighbors
    from batchplan.graph.neighbors import nearest_neighbors as nearest_neighbors
    from batchplan.graph.ordering import cuthill_mckee as cuthill_mckee
    from batchplan.graph.similarity_graph import SimilarityGraph as SimilarityGraph

__getattr__, __dir__ = lazily(__name__, __file__)
