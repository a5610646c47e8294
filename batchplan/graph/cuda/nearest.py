"""The exact k most similar rows of every row, in one sweep that serves both directions.

A sample of the other side sets a limit for each row and each column, which more than enough pairs
reach. A pair is listed if it reaches either. Rows with fewer than k pairs are swept again with
lower limits; they are fewer than one in 10^6, unless a guard excludes many pairs.
"""

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.data.rows import to_float32
from batchplan.graph.cuda import kernels
from batchplan.graph.cuda.operands import DeviceKeys, keys_from
from batchplan.graph.cuda.sweep import DeviceSides, Limits, sides_of, strips
from batchplan.graph.documents import Neighbors
from batchplan.graph.screen import screening_dtype
from batchplan.guard.apart import separated
from batchplan.guard.guard import Guard
from batchplan.guard.rules import Rules, bytes_of_rows, rules_of
from batchplan.runtime import FEWER, Runtime, silent

# The limit is the eighth largest similarity of a sample, whose size is such that 16 k pairs are
# expected to reach it. Fewer than k do with probability 1e-7: the share of all pairs above the
# eighth of the sample is a Gamma variable of shape 8, and P(Gamma(8) < 8 / 16) = 0.5^8 / 8!.
_RANK = 8
_PLENTY = 16
_GROUPS = 128  # maxima that the similarities of a large sample are reduced to
_AT_ONCE = 1 << 26  # similarities of a sample's tile
_PENDING = 1 << 25  # pairs to rank at a time; some 60 bytes each
_FIXED = 60 * _PENDING + (1 << 30)  # bytes: those, strips and samples


def neighbors_on(
    embeddings: Embeddings,
    k: int,
    runtime: Runtime,
    normalize: bool,
    guard: Guard | None,
    both: bool,
) -> list[Neighbors]:
    """`nearest` of embeddings, in host memory.

    Args:
        embeddings: N pairs of d dimensions.
        k: neighbours per row, from 1 to N - 1.
        runtime: devices, memory budget, progress.
        normalize: give rows unit length.
        guard: excludes pairs that break it.
        both: whether to also return the neighbours of each y; only if y is not x.

    Returns:
        Indices and similarities, (N, k) each, for x, and then for y.

    Raises:
        ResourceError: the host or a device has too little memory.
    """
    n, d = embeddings.y.shape
    paired = embeddings.paired
    owners = n * (1 + both)
    what = f"{k} nearest neighbours of each of {n} rows"
    runtime.require_memory(12 * owners * k, what, FEWER)
    devices = runtime.torch_devices()
    dtype = screening_dtype(devices[0])
    rows = 4 * d * (1 + paired) + 2 * bytes_of_rows(guard, embeddings)
    need = n * (rows + dtype.itemsize * d + 512) + 100 * owners * k + _FIXED
    for device in devices:
        runtime.require_memory(need, what, FEWER, device)
    with runtime.stage("prepare", 2 * n) as advance:
        sides = sides_of(embeddings, devices, dtype, normalize, paired, advance)
        rules = rules_of(guard, embeddings, sides.keys[0].rows, normalize)
    with runtime.stage("neighbors", n) as advance:
        indices, similarities = nearest(sides, k, rules, both, advance)
    parts = zip(*(torch.split(part.cpu(), n) for part in (indices, similarities)), strict=True)
    return [Neighbors(rows.numpy(), values.numpy()) for rows, values in parts]


@dataclass(eq=False)
class _Ranked:
    """The best k partners offered to each owner, the most similar first, then the lower partner.

    An owner is a row of x, or N + j for row j of y.
    """

    owners: int
    k: int
    pending: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = field(default_factory=list)
    size: int = 0

    def offer(self, owner: torch.Tensor, partner: torch.Tensor, score: torch.Tensor) -> bool:
        """Add pairs; returns whether `rank` is due, as many are pending."""
        self.pending.append((owner, partner, score))
        self.size += len(owner)
        return self.size > _PENDING + self.owners * self.k

    def forget(self) -> None:
        """Drop all offers."""
        self.pending, self.size = [], 0

    def rank(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """int64 owners, partners and places from 0 to k - 1, and float32 scores."""
        owner, partner, score = (torch.cat(part) for part in zip(*self.pending, strict=True))
        by_partner = torch.argsort(partner, stable=True)
        owner, partner, score = (part[by_partner] for part in (owner, partner, score))
        bits = (score + 0.0).view(torch.int32)  # 0 for -0, which equals it
        falling = -1 - (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()
        key = (owner.long() << 32) + falling + (1 << 31)
        order = torch.argsort(key, stable=True)
        owner, partner, score = (part[order] for part in (owner, partner, score))
        owners = torch.arange(self.owners, dtype=owner.dtype, device=owner.device)
        starts = torch.searchsorted(owner, owners)
        place = torch.arange(len(owner), device=owner.device) - starts[owner.long()]
        best = place < self.k
        owner, partner, score = owner[best], partner[best], score[best]
        self.pending = [(owner, partner, score)]
        self.size = len(owner)
        return owner.long(), partner.long(), place[best], score


def nearest(
    sides: DeviceSides, k: int, rules: Rules, both: bool, advance: Callable[[int], None]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest x_i . y_j of every i, and of every j.

    Args:
        sides: N pairs.
        k: from 1 to N - 1.
        rules: of a guard, on the first device; pairs that break it are excluded.
        both: whether to also return a row for each y, if y is not x.
        advance: called with the number of rows done.

    Returns:
        int64 and float32 (N, k), or (2 N, k) for both: partners, the most similar first, ties by
        the lower index, and similarities; -1 and -inf where there are fewer.
    """
    n = sides.embeddings.num_rows
    paired = sides.embeddings.paired
    both = both and paired
    owners = 2 * n if both else n
    device = sides.device
    ranked = _Ranked(owners, k)
    indices = torch.full((owners, k), -1, device=device)
    similarities = torch.full((owners, k), -torch.inf, device=device)
    expected = float(_PLENTY * k)
    lacking = torch.ones(owners, dtype=torch.bool, device=device)
    while True:
        limits = _limits(sides, expected, owners, rules)
        limits[~lacking] = torch.inf
        # A later sweep lists pairs of the few rows that lack some, so its strips stay high.
        guess = expected * float(lacking.float().mean()) * (1 + both)
        _sweep(sides, limits, ranked, rules, guess, advance)
        owner, partner, place, score = ranked.rank()
        indices[owner, place] = partner
        similarities[owner, place] = score
        lacking = (indices[:, -1] < 0) & (limits > -torch.inf)
        if not lacking.any():
            return indices, similarities
        ranked.forget()  # the next sweep offers them again
        expected *= _PLENTY
        advance = silent


def _sweep(
    sides: DeviceSides,
    limits: torch.Tensor,
    ranked: _Ranked,
    rules: Rules,
    guess: float,
    advance: Callable[[int], None],
) -> None:
    """Offer every pair that reaches a limit to its owners; limits rise as better pairs come. A row
    of x is expected to list ``guess`` pairs."""
    n = sides.embeddings.num_rows
    paired = sides.embeddings.paired
    both = len(limits) == 2 * n

    def of_pairs(worker: int) -> Limits:
        device = sides.keys[worker].rows.device
        rows = limits[:n].to(device)
        if both:
            return Limits(rows, limits[n:].to(device))
        return Limits(rows, torch.full_like(rows, torch.inf) if paired else rows)

    with closing(strips(sides, of_pairs, guess, half=not paired)) as swept:
        for pairs in swept:
            i, j, score = (
                part.to(sides.device) for part in (pairs.rows, pairs.columns, pairs.scores)
            )
            keep = allowed(rules, i, j, score)
            i, j, score = i[keep], j[keep], score[keep]
            full = _offer(ranked, limits, i, j, score)
            if both:
                full |= _offer(ranked, limits, j + n, i, score)
            elif not paired:
                full |= _offer(ranked, limits, j, i, score)
            if full:
                owner, _, place, score = ranked.rank()
                last = place == ranked.k - 1
                limits[owner[last]] = torch.maximum(limits[owner[last]], score[last])
            advance(pairs.stop - pairs.start)


def _offer(
    ranked: _Ranked,
    limits: torch.Tensor,
    owner: torch.Tensor,
    partner: torch.Tensor,
    score: torch.Tensor,
) -> bool:
    reach = score >= limits[owner]
    return ranked.offer(owner[reach], partner[reach], score[reach])


def allowed(rules: Rules, i: torch.Tensor, j: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
    """bool (E,): which pairs, with int32 rows and float32 scores s_ij, do not break a guard."""
    keep = ~separated(rules.apart, i, j)
    if rules.ceilings.numel():
        highest = kernels.score(rules.x, rules.y, i, j, 0) if rules.referred else score
        if len(rules.x):
            highest = torch.maximum(highest, kernels.score(rules.y, rules.x, i, j, 0))
        keep &= highest < torch.minimum(rules.ceilings[i], rules.ceilings[j])
    return keep


def _limits(sides: DeviceSides, expected: float, owners: int, rules: Rules) -> torch.Tensor:
    """float32 (owners,): limits that about ``expected`` pairs of each owner reach, those above a
    ceiling aside; -inf for all.

    They come from rounded rows, so they only decide how many pairs are listed.
    """
    n = sides.embeddings.num_rows
    limits = torch.full((owners,), -torch.inf, device=sides.device)
    if expected >= n:
        return limits
    size = math.ceil(_RANK * n / expected)
    if size > 4 * _GROUPS:
        size -= size % _GROUPS
    generator = np.random.Generator(np.random.Philox(0))
    sample = np.sort(generator.choice(n, size, replace=False, shuffle=False))
    keys = sides.keys[0]
    means, dtype = (keys.query_mean, keys.key_mean), keys.rounded.dtype
    ys = keys_from(keys.rows[torch.from_numpy(sample).to(sides.device)], *means, dtype)
    # Ceilings of a reference are of other similarities.
    ceilings = rules.ceilings[:0] if rules.referred else rules.ceilings
    _fill(limits[:n], lambda start, stop: sides.queries(0, start, stop), ys, sample, ceilings)
    if owners > n:
        rows = torch.from_numpy(sides.embeddings.x.take(sample))
        xs = keys_from(to_float32(rows, sides.device, sides.normalize), *means[::-1], dtype)
        _fill(limits[n:], lambda start, stop: keys.rows[start:stop], xs, sample, ceilings)
    return limits


def _fill(
    limits: torch.Tensor,
    rows_of: Callable[[int, int], torch.Tensor],
    keys: DeviceKeys,
    sample: NDArray[np.int64],
    ceilings: torch.Tensor,
) -> None:
    n, size = len(limits), len(sample)
    step = max(1, _AT_ONCE // size)
    of_sample = ceilings[torch.from_numpy(sample).to(limits.device)] if len(ceilings) else ceilings
    for start in range(0, n, step):
        stop = min(start + step, n)
        rows = rows_of(start, stop)
        near = (rows - keys.query_mean).to(keys.rounded.dtype)
        tile = (near @ keys.rounded[:size, : near.shape[1]].T).float()
        tile += keys.terms[:size]
        means = rows @ keys.key_mean
        if len(ceilings):
            lowest = torch.minimum(ceilings[start:stop, None], of_sample) - means[:, None]
            tile.masked_fill_(tile >= lowest, -torch.inf)
        first, last = np.searchsorted(sample, [start, stop])
        own = torch.from_numpy(sample[first:last] - start).to(tile.device)
        tile[own, torch.arange(first, last, device=tile.device)] = -torch.inf
        # The eighth largest group maximum is the eighth largest value, or rarely the next. Maxima
        # read the tile once, a selection a dozen times.
        groups = tile.view(stop - start, -1, _GROUPS).amax(1) if size > 4 * _GROUPS else tile
        limits[start:stop] = groups.topk(_RANK, dim=1).values[:, -1] + means
