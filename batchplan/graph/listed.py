"""The graph of mined lists of candidates, which needs no search among vectors."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from batchplan.data.candidates import Candidates
from batchplan.graph.affinity import Affinity
from batchplan.kernels import njit
from batchplan.runtime import Runtime

_BYTES = 60  # for each edge: directed, transposed, and their sum


def listed_affinity(
    lists: Candidates,
    runtime: Runtime,
    *,
    neighbors: int,
    batch_size: int,
    temperature: float,
    ceilings: NDArray[np.float32] | None,
) -> Affinity:
    """Link each row with its first candidates, weighted by what they add to its loss; O(E).

    A row that is not listed counts with f_a, the lowest score of the list of row a. If row b joins
    the batch of a instead of such a row, the loss of a rises by log(1 + (exp(s_ab / tau) -
    exp(f_a / tau)) / S_a). S_a is the sum of exponentials of its own pair and B - 1 rows that are
    not listed.

    Args:
        lists: of N rows.
        runtime: memory budget, progress.
        neighbors: the most candidates of a row to link.
        batch_size: B.
        temperature: tau.
        ceilings: float32 (N,), of the guard; pairs that reach one get no edge.

    Raises:
        ResourceError: the graph does not fit into the memory budget.
    """
    n, ends = lists.num_rows, np.append(0, np.minimum(np.diff(lists.indptr), neighbors).cumsum())
    edges = int(ends[-1])
    runtime.require_memory(_BYTES * edges, f"{edges} candidates of {n} rows", "use --neighbors")
    with runtime.stage("weigh"):
        limits = np.full(n, np.inf, np.float32) if ceilings is None else ceilings
        own = lists.indptr, lists.indices, lists.scores, lists.positive, lists.floors
        indices, weights = _weigh(own, ends, limits, 1 / temperature, batch_size)
        directed = csr_array((weights, indices, ends), shape=(n, n))
        directed.eliminate_zeros()
        directed.sort_indices()
        united = (directed + directed.T.tocsr()).tocsr()
        united.sort_indices()
    return Affinity(united.indptr.astype(np.int64), united.indices, united.data)


@njit
def _weigh(lists, ends, ceilings, scale, batch_size):  # type: ignore[no-untyped-def]
    indptr, candidates, scores, positive, floors = lists
    indices = np.empty(ends[-1], np.int32)
    weights = np.zeros(ends[-1], np.float32)
    for a in range(ends.size - 1):
        own, floor = positive[a] * scale, floors[a] * scale
        peak = max(own, floor)
        others = (batch_size - 1) * np.exp(floor - peak)
        total = peak + np.log(np.exp(own - peak) + others)
        for place in range(ends[a + 1] - ends[a]):
            b, score = candidates[indptr[a] + place], scores[indptr[a] + place]
            indices[ends[a] + place] = b
            if score < min(ceilings[a], ceilings[b]):
                rise = np.exp(score * scale - total) - np.exp(floor - total)
                weights[ends[a] + place] = max(np.log1p(rise), 1e-30)
    return indices, weights
