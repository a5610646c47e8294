"""Mini-Batch Optimization of Contrastive Loss (2023): what vectors become that are trained.

N pairs of vectors in d dimensions, batches of 2, SGD at a constant rate of 0.5, as in section 5.
There, vectors are projected onto the sphere after each step; the authors' code normalises them in
the forward pass instead, as here. So vectors grow, the angle of a step shrinks, and the training
settles. With a projection, a step on two pairs moves them so far that most schemes never stop
moving.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.planners import plan
from tests.benchmarks.reproductions.claims import Claim, Effort, Found, table

TITLE = "Mini-Batch Optimization"
RATE = 0.5
FULL, ALL, FIXED, SHUFFLED = "full batch", "all pairs", "fixed", "shuffled"
OSGD, BCS, SCB = "osgd", "bcs", "scb"
SCHEMES = (FULL, ALL, FIXED, SHUFFLED, OSGD, BCS, SCB)
LONGER = {ALL: 8}  # times as many epochs, each one step; the paper needed 50,000
REACHED = 0.05  # largest difference of an inner product from where it should be
NEAR, AS_GOOD = 0.02, 0.001  # nats above the loss of the solution
WIDE, NARROW = "d = 2N", "d = N/2"
OFF, BATCHES = "off", "batches"

Float = NDArray[np.float64]
Step = NDArray[np.int64]  # batches (m, B), whose mean loss a step lowers


def measure(data: Path, effort: Effort) -> dict[str, Any]:
    """Each scheme for each N, in more and in fewer dimensions than a simplex needs."""
    found: dict[str, Any] = {}
    for regime, factor in ((WIDE, 2.0), (NARROW, 0.5)):
        schemes = found[regime] = {name: {} for name in SCHEMES}
        for n in effort.toy_rows:
            runs = {name: train(name, n, int(factor * n), effort.toy_epochs) for name in SCHEMES}
            solution = runs[FULL]["products"]
            goal = simplex(n) if regime == WIDE else solution
            for name, run in runs.items():
                schemes[name][n] = {
                    OFF: distance(run["products"], goal),
                    "excess": float(loss(run["products"]) - loss(solution)),
                    BATCHES: first(run["losses"], float(loss(solution)) + NEAR),
                }
    return found


class Vectors:
    """What is trained: N vectors for either side, normalised in the forward pass."""

    def __init__(self, n: int, dim: int) -> None:
        draw = np.random.default_rng(n)
        self.raw = [sphere(draw.standard_normal((n, dim))) for _ in range(2)]

    @property
    def x(self) -> Float:
        """The unit vectors of one side (N, d)."""
        return sphere(self.raw[0])

    @property
    def y(self) -> Float:
        """The unit vectors of the other side (N, d)."""
        return sphere(self.raw[1])

    @property
    def products(self) -> Float:
        """Inner products (N, N)."""
        return self.x @ self.y.T

    def step(self, batches: Step, rate: float) -> None:
        """One step of SGD on the mean loss of some batches."""
        units = self.x, self.y
        u, v = (side[batches] for side in units)
        exp = np.exp(u @ v.transpose(0, 2, 1))
        by = exp / exp.sum(2, keepdims=True) + exp / exp.sum(1, keepdims=True)
        by = (by - 2 * np.eye(batches.shape[1])) / batches.size
        for raw, unit, parts in zip(self.raw, units, (by @ v, by.mT @ u), strict=True):
            gradient = np.zeros_like(raw)
            np.add.at(gradient, batches, parts)
            gradient -= (gradient * unit).sum(1, keepdims=True) * unit
            raw -= rate * gradient / np.linalg.norm(raw, axis=1, keepdims=True)

    def losses(self, batches: Step) -> Float:
        """The loss of each batch (m,)."""
        return loss(self.x[batches] @ self.y[batches].mT)

    def plan(self, scheme: str, seed: int) -> list[Step]:
        """The batches of a plan of the vectors as they are, each a step."""
        embeddings = Embeddings.from_arrays(self.x.astype(np.float32), self.y.astype(np.float32))
        made = plan(
            embeddings, planner=scheme, batch_size=2, seed=seed, temperature=1.0, device="cpu"
        )
        return [batch[None].astype(np.int64) for batch in made.batches()]


def train(scheme: str, n: int, dim: int, epochs: int) -> dict[str, Any]:
    """Inner products at the end, and after every epoch the batches used and the loss of all
    rows."""
    vectors, draw = Vectors(n, dim), np.random.default_rng(0)
    unchanged = split(draw.permutation(n))
    epochs *= LONGER.get(scheme, 1)
    used, losses = 0, []
    for epoch in range(epochs):
        for batches in unchanged if scheme == FIXED else steps(scheme, vectors, epoch, draw):
            vectors.step(batches, RATE)
            used += len(batches)
        losses.append((used, float(loss(vectors.products))))
    return {"products": vectors.products, "losses": losses}


def steps(scheme: str, vectors: Vectors, epoch: int, draw: np.random.Generator) -> Iterator[Step]:
    """The steps of an epoch, which may depend on the vectors of that moment."""
    n = len(vectors.x)
    if scheme == FULL:
        yield np.arange(n)[None]
    elif scheme == ALL:
        yield np.array(list(combinations(range(n), 2)))
    elif scheme == SHUFFLED:
        yield from split(draw.permutation(n))
    elif scheme == OSGD:  # as the planner does if its pool is as large; faster than plans
        every = np.array(list(combinations(range(n), 2)))
        for _ in range(n // 2):
            yield every[[vectors.losses(every).argmax()]]
    else:
        yield from vectors.plan(scheme, epoch)


def split(order: NDArray[np.int64]) -> list[Step]:
    return list(order.reshape(-1, 1, 2))


def sphere(rows: Float) -> Float:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def simplex(n: int) -> Float:
    """Inner products of a simplex equiangular tight frame (definition 1)."""
    return np.where(np.eye(n) > 0, 1.0, -1 / (n - 1))


def loss(products: Float) -> Float:
    """The loss of batches (..., B, B) in both directions (equation 1)."""
    exp, own = np.exp(products), products.diagonal(axis1=-2, axis2=-1)
    return (np.log(exp.sum(-1)) + np.log(exp.sum(-2)) - 2 * own).mean(-1)


def distance(products: Float, goal: Float) -> float:
    """The largest difference, whatever the order of the rows: positives and others, each sorted."""
    off = ~np.eye(len(goal), dtype=bool)
    both = [[np.sort(one[off]), np.sort(one.diagonal())] for one in (products, goal)]
    return float(max(np.abs(a - b).max() for a, b in zip(*both, strict=True)))


def first(losses: list[tuple[int, float]], goal: float) -> int | None:
    """How many batches it took to come to a loss."""
    return next((used for used, one in losses if one <= goal), None)


def column(found: dict[str, Any], regime: str, scheme: str, what: str) -> list[float]:
    return [one[what] for one in found[regime][scheme].values()]


def spread(found: dict[str, Any], regime: str, scheme: str, what: str = OFF) -> str:
    values = column(found, regime, scheme, what)
    low, high = f"{min(values):.3f}", f"{max(values):.3f}"
    return low if low == high else f"{low} to {high}"


def arrives(regime: str, scheme: str) -> Any:
    """Judge of a claim that a scheme ends where the full batch should."""

    def judge(found: dict[str, Any]) -> Found:
        ends = column(found, regime, scheme, OFF)
        hit = sum(end <= REACHED for end in ends)
        return Found(
            f"off by {spread(found, regime, scheme)}; at most {REACHED} for {hit} of {len(ends)} N",
            [end <= REACHED for end in ends],
        )

    return judge


def stays_away(regime: str) -> Any:
    """Judge of a claim that fixed and shuffled batches end elsewhere."""

    def judge(found: dict[str, Any]) -> Found:
        ends = {name: column(found, regime, name, OFF) for name in (FIXED, SHUFFLED)}
        parts = [f"{name} off by {spread(found, regime, name)}" for name in ends]
        return Found(" and ".join(parts), [min(end) > REACHED for end in ends.values()])

    return judge


def ordered(found: dict[str, Any]) -> Found:
    ends = {name: column(found, WIDE, name, OFF) for name in (OSGD, FIXED, SHUFFLED)}
    better = [max(ends[OSGD]) < min(ends[name]) for name in (FIXED, SHUFFLED)]
    return Found(f"off by {spread(found, WIDE, OSGD)}", [all(better), min(ends[OSGD]) > REACHED])


def as_good(*schemes: str) -> Any:
    """Judge of a claim that schemes end where the full batch does, in few dimensions."""

    def judge(found: dict[str, Any]) -> Found:
        parts, met = [], []
        for name in schemes:
            ends = column(found, NARROW, name, OFF)
            excess = max(column(found, NARROW, name, "excess"))
            met += [max(ends) <= REACHED, excess <= AS_GOOD]
            hit = sum(end <= REACHED for end in ends)
            parts.append(
                f"{name} for {hit} of {len(ends)} N; off by at most {max(ends):.3f}, in loss by "
                f"{excess:.4f}"
            )
        return Found("; ".join(parts), met)

    return judge


def slow(found: dict[str, Any]) -> Found:
    ends = found[NARROW][ALL]
    wide, few, many = (
        one[BATCHES] for one in (found[WIDE][ALL][max(ends)], ends[min(ends)], ends[max(ends)])
    )
    return Found(
        f"batches until the loss is within {NEAR}: {told(wide)} in d = 2N, {told(many)} in "
        f"d = N/2 for N = {max(ends)}, {told(few)} for N = {min(ends)}",
        [later(many, wide), later(many, few)],
    )


def iterations(found: dict[str, Any]) -> Found:
    shown, met = [], []
    for regime in (WIDE, NARROW):
        most = max(found[regime][ALL])
        counts = {name: found[regime][name][most][BATCHES] for name in (ALL, BCS, SCB)}
        met += [later(counts[ALL], counts[name], times=2) for name in (BCS, SCB)]
        each = ", ".join(f"{name} {told(count)}" for name, count in counts.items())
        shown.append(f"{regime}, N = {most}: {each}")
    return Found(f"batches until within {NEAR}: {'; '.join(shown)}", met)


def later(one: int | None, other: int | None, times: int = 1) -> bool:
    """Whether one count is above so many times another; None is never."""
    return other is not None and (one is None or one > times * other)


def told(count: int | None) -> str:
    return "never" if count is None else f"{count:,}"


def details(found: dict[str, Any]) -> str:
    """The largest difference of each scheme for each N."""
    tables = []
    for regime, schemes in found.items():
        lines = [[regime, *(f"N = {n}" for n in schemes[FULL])]]
        lines.append(["---"] * len(lines[0]))
        for scheme, runs in schemes.items():
            lines.append([scheme, *(f"{one[OFF]:.3f}" for one in runs.values())])
        tables.append(table(lines))
    return "\n\n".join(tables)


CLAIMS = [
    Claim(
        "Figures 2 and 4 (a), lemma 1",
        "d = 2N: the full batch ends in a simplex ETF",
        arrives(WIDE, FULL),
    ),
    Claim("Figures 2 and 4 (b), theorem 1", "so do all pairs of rows together", arrives(WIDE, ALL)),
    Claim("Figure 4 (c, d)", "fixed and shuffled batches do not", stays_away(WIDE)),
    Claim(
        "Figure 4 (e)",
        "OSGD comes nearer, to another solution than the ETF",
        ordered,
    ),
    Claim("Figures 2 and 4 (f)", "BcS ends in the ETF", arrives(WIDE, BCS)),
    Claim("Figures 2 and 4 (g)", "ScB ends in the ETF", arrives(WIDE, SCB)),
    Claim(
        "Figures 2 and 5 (b)",
        "d = N/2: all pairs end where the full batch does",
        as_good(ALL),
    ),
    Claim("Figure 5 (c, d)", "fixed and shuffled batches do not", stays_away(NARROW)),
    Claim(
        "Figures 2 and 5 (f, g)",
        "BcS and ScB do, up to the order of rows",
        as_good(BCS, SCB),
    ),
    Claim(
        "Appendix E.1",
        "all pairs converge much more slowly with d = N/2, the more so for larger N",
        slow,
    ),
    Claim("Figure 2", "BcS and ScB need far fewer iterations than all pairs", iterations),
]
