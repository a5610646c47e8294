"""Embeddings -> SimilarityGraph, and orderings of such graphs."""

from batchplan.graph.budget import EdgeBudget
from batchplan.graph.build import build_graph
from batchplan.graph.cuthill_mckee import cuthill_mckee
from batchplan.graph.similarity_graph import SimilarityGraph

__all__ = ["EdgeBudget", "SimilarityGraph", "build_graph", "cuthill_mckee"]
