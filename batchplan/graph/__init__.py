"""Embeddings -> neighbours, graphs, and orderings of graphs."""
