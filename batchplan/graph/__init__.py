"""Embeddings -> SimilarityGraph, and orderings of such graphs.

The names load what they need when first used: a budget is checked without torch.
"""

from typing import TYPE_CHECKING

from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.graph.budget import EdgeBudget
    from batchplan.graph.build import build_graph
    from batchplan.graph.neighbors import Neighbors, nearest_neighbors
    from batchplan.graph.ordering import cuthill_mckee
    from batchplan.graph.similarity_graph import SimilarityGraph

__all__ = [
    "EdgeBudget",
    "Neighbors",
    "SimilarityGraph",
    "build_graph",
    "cuthill_mckee",
    "nearest_neighbors",
]

__getattr__ = lazily(
    __name__,
    {
        "EdgeBudget": "batchplan.graph.budget",
        "Neighbors": "batchplan.graph.neighbors",
        "SimilarityGraph": "batchplan.graph.similarity_graph",
        "build_graph": "batchplan.graph.build",
        "cuthill_mckee": "batchplan.graph.ordering",
        "nearest_neighbors": "batchplan.graph.neighbors",
    },
)
