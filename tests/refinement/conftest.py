"""Brute force: the loss of batches in float64, and all that a test needs to refine some."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from batchplan.data import Embeddings
from batchplan.data.answers import Answers
from batchplan.graph.affinity import affinity_graph, neighbor_lists
from batchplan.guard.apart import Apart
from batchplan.guard.guard import Guard
from batchplan.refinement import make_objective
from batchplan.runtime import Runtime
from tests.dense import unit


@dataclass
class Case:
    """Data, what is asked of its batches, and the formulas that say how good they are."""

    x: np.ndarray
    y: np.ndarray | None = None
    similarity: str = "cosine"
    tau: float = 0.05
    ceilings: np.ndarray | None = None
    groups: tuple = ()
    penalty: float = np.inf
    kinds: np.ndarray | None = None
    judge: Embeddings | None = None
    negatives: np.ndarray | None = None  # (N, k, d); rows of zeros are missing
    answers: Answers | None = None

    def but(self, **changes):
        return replace(self, **changes)

    @property
    def runtime(self):
        return Runtime(device="cpu")

    def similarities(self):
        """float64 (N, N)."""
        return self.products(self.x, self.x if self.y is None else self.y)

    def documents(self):
        """float64 (1 + k, N, N): the similarities of anchors and documents; -inf for missing."""
        tiles = [self.similarities()]
        for column in () if self.negatives is None else self.negatives.swapaxes(0, 1):
            missing = ~column.any(axis=1)
            tile = self.products(self.x, np.where(missing[:, None], 1.0, column))
            tile[:, missing] = -np.inf
            tiles.append(tile)
        return np.stack(tiles)

    def judged(self):
        """float64 (N, N): what the reference finds."""
        return self.products(*(side.rows(0, len(self.x)) for side in (self.judge.x, self.judge.y)))

    def products(self, *sides):
        x, y = map(unit, sides) if self.similarity == "cosine" else sides
        return x.astype(np.float64) @ y.astype(np.float64).T

    def embeddings(self):
        return Embeddings.from_arrays(self.x, self.y, negatives=self.negatives)

    def guard(self):
        ceilings = None if self.ceilings is None else self.ceilings.astype(np.float32)
        apart = Apart.of([np.asarray(one) for one in self.groups], self.answers)
        return Guard(ceilings, apart, self.judge)

    def objective(self):
        return make_objective(
            self.embeddings(), self.runtime, similarity=self.similarity, temperature=self.tau,
            guard=self.guard(), penalty=self.penalty, kinds=self.kinds,
        )  # fmt: skip

    def affinity(self, neighbors=16):
        objective = self.objective()
        lists = neighbor_lists(
            self.embeddings(), neighbors, self.runtime, similarity=self.similarity, guard=Guard()
        )
        return affinity_graph(
            lists, objective.x, objective.y, self.runtime, batch_size=8, temperature=self.tau,
            negatives=objective.negatives, missing=objective.missing,
        )  # fmt: skip

    def together(self):
        """bool (N, N): pairs of one group."""
        found = np.zeros((len(self.x), len(self.x)), bool)
        for codes in map(np.asarray, self.groups):
            found |= (codes[:, None] == codes) & (codes >= 0)[:, None]
        np.fill_diagonal(found, False)
        return found

    def alike(self, S):
        """bool (N, N): pairs of no group that are too similar."""
        if self.ceilings is None:
            return np.zeros(S.shape, bool)
        if self.negatives is not None:
            S = self.documents().max(axis=0)
        if self.judge is not None:
            S = self.judged()
        lower = np.minimum(self.ceilings[:, None], self.ceilings)
        found = np.maximum(S, S.T) >= lower
        np.fill_diagonal(found, False)
        return found & ~self.together()

    def counted(self, S):
        """bool (N, N): pairs that may be each other's negatives, and every row with itself."""
        found = ~self.together() & ~self.alike(S)
        np.fill_diagonal(found, True)
        return found

    def loss(self, rows, offsets):
        """The sum over rows and both directions of log sum exp over what counts."""
        S = self.similarities()
        counted = self.counted(S)
        forth = np.logaddexp.reduce(self.documents() / self.tau)
        back = S.T / self.tau
        total = 0.0
        for batch in np.split(rows, offsets[1:-1]):
            block = np.ix_(batch, batch)
            for logits in (forth, back):
                one = np.where(counted[block], logits[block], -np.inf)
                peak = one.max(axis=1)
                total += (peak + np.log(np.exp(one - peak[:, None]).sum(axis=1))).sum()
        return total

    def pairs(self, rows, offsets, of):
        """The pairs of a bool (N, N) that share a batch."""
        batches = np.split(rows, offsets[1:-1])
        return sum(int(of[np.ix_(one, one)].sum()) for one in batches) // 2

    def cut(self, batch_size, seed=0):
        """Rows in random order, and where batches of a size begin: the last may be short."""
        n = len(self.x)
        rows = np.random.default_rng(seed).permutation(n)
        return rows, np.append(np.arange(0, n, batch_size), n)


def clustered(n, d=8, clusters=6, spread=0.5, seed=0, paired=True):
    """Rows around some centres, so that there is much to gain."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((clusters, d))[rng.integers(clusters, size=n)]
    x = centres + spread * rng.standard_normal((n, d))
    y = x + spread * rng.standard_normal((n, d))
    return Case(x.astype(np.float32), y.astype(np.float32) if paired else None)


@pytest.fixture(scope="session")
def clusters():
    """A function that makes a case of clustered rows."""
    return clustered


@pytest.fixture(scope="session")
def case():
    """The class of cases: tests cannot import this file."""
    return Case
