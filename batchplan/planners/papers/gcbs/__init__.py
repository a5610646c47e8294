"""GCBS: the largest similarities as a graph, ordered by reverse Cuthill-McKee."""
