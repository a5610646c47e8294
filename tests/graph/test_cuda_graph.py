"""The graph as CUDA devices build it, run on the CPU by Triton's interpreter: the same bytes."""

import numpy as np
import pytest
import torch

from batchplan.data import Embeddings
from batchplan.graph import EdgeBudget, build_graph, construction
from batchplan.graph.threshold import Bracket
from batchplan.runtime import Runtime

CPU = Runtime(device="cpu")

pytestmark = pytest.mark.usefixtures("device_code")


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_equals_brute_force(embeddings, brute, similarity):
    budget = EdgeBudget(0.97)
    graph = build_graph(embeddings, budget, CPU, similarity=similarity)
    brute.check(graph, embeddings, budget.edges(embeddings.num_rows), similarity)
