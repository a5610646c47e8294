"""Compiled kernels of the guard, for the CPU."""

import numpy as np

from batchplan.kernels import njit
from batchplan.quality.losses.exponentials import STEP

REASONS = 4  # why a pair is not allowed: similarity, group, duplicate, or any of them


@njit
def hide(  # type: ignore[no-untyped-def]
    tile, forth, back, ceilings, column_ceilings, slack, codes, column_codes, hidden, broken,
    column_broken, doubtful,
):  # fmt: skip
    """Mark and count the pairs of a tile that break the guard.

    Args:
        tile: float32 (R, W), -inf for pairs that do not exist; W a multiple of `STEP`.
        forth, back: float32 (R, W), s_ij and s_ji that the guard compares; may be the same array.
        ceilings, column_ceilings: float32 (R,) and (W,).
        slack: the largest error of the difference to a ceiling.
        codes, column_codes: int64 (C, R) and (C, W).
        hidden: uint8 (R, W), which becomes 1 for these pairs and 0 for others.
        broken, column_broken: int64 (R,) and (W,), which gain these pairs.
        doubtful: int32 (R W,), for the places r W + c of pairs within the slack, marked 0.

    Returns:
        The number of doubtful pairs.
    """
    forbidden, near = np.empty(STEP, np.int32), np.empty(STEP, np.int32)
    count, width = 0, tile.shape[1]
    for r in range(tile.shape[0]):
        for start in range(0, width, STEP):
            there, here = forth[r, start : start + STEP], back[r, start : start + STEP]
            known = tile[r, start : start + STEP]
            limits = column_ceilings[start : start + STEP]
            marks = hidden[r, start : start + STEP]
            # Small loops without branches, which the compiler vectorises.
            for c in range(STEP):
                highest = max(there[c], here[c])
                limit = limits[c] if limits[c] < ceilings[r] else ceilings[r]
                excess = highest - limit
                exists = np.int32(known[c] > -np.inf)
                forbidden[c] = np.int32(excess > slack) & exists
                near[c] = np.int32(abs(excess) <= slack) & exists
            for k in range(codes.shape[0]):
                others = column_codes[k, start : start + STEP]
                for c in range(STEP):
                    same = np.int32(others[c] == codes[k, r]) & np.int32(known[c] > -np.inf)
                    forbidden[c] |= same
                    near[c] &= np.int32(1) - same
            doubts, sum_ = np.int32(0), np.int32(0)
            for c in range(STEP):
                marks[c] = np.uint8(forbidden[c])
                doubts += near[c]
                sum_ += forbidden[c]
            broken[r] += sum_
            for c in range(STEP):
                column_broken[start + c] += forbidden[c]
            if doubts:
                for c in range(STEP):
                    if near[c]:
                        doubtful[count] = r * width + start + c
                        count += 1
    return count


@njit
def batch_losses(  # type: ignore[no-untyped-def]
    similarities, judged, rows, ceilings, codes, kinds, shift, scale, affected
):
    """Sum the losses of the entries of equal batches, over all pairs and over the allowed ones.

    Args:
        similarities: float64 (batches, B, B), s_ij of the rows of each batch.
        judged: the same shape, what the guard compares; may be the same array.
        rows: int64 (batches, B).
        ceilings: float64 (N,); (0,) without a guard.
        codes: int64 (C, N).
        kinds: int64 (C,), the reason of each of the codes; 0 is similarity.
        shift: at least the largest s_ij/tau; exp(-2 shift) must not vanish.
        scale: 1/tau.
        affected: bool (N,), set for the rows of pairs that are not allowed.

    Returns:
        float64 (2, 2), the sums over all and over allowed pairs, each x to y and y to x; int64
        (`REASONS`,), the pairs {i, j} that are not allowed by reason, and all of them.
    """
    size, guarded = rows.shape[1], ceilings.size > 0
    losses, counts = np.zeros((2, 2)), np.zeros(REASONS, np.int64)
    forth, back = np.empty((2, size)), np.empty((2, size))
    for b in range(rows.shape[0]):
        tile, judge, own = similarities[b], judged[b], rows[b]
        forth[:], back[:] = 0, 0
        for i in range(size):
            row = own[i]
            for j in range(i):
                other = own[j]
                there = np.exp(tile[i, j] * scale - shift)
                here = np.exp(tile[j, i] * scale - shift)
                forth[0, i] += there
                back[0, j] += there
                forth[0, j] += here
                back[0, i] += here
                reasons = np.int64(0)
                if guarded:
                    highest = max(judge[i, j], judge[j, i])
                    reasons |= np.int64(highest >= min(ceilings[row], ceilings[other]))
                    for k in range(codes.shape[0]):
                        reasons |= np.int64(codes[k, row] == codes[k, other]) << kinds[k]
                if reasons == 0 or row == other:
                    forth[1, i] += there
                    back[1, j] += there
                    forth[1, j] += here
                    back[1, i] += here
                else:
                    for reason in range(REASONS - 1):
                        counts[reason] += (reasons >> reason) & 1
                    counts[-1] += 1
                    affected[row] = affected[other] = True
        for i in range(size):
            positive = np.exp(tile[i, i] * scale - shift)
            for which in range(2):
                losses[which, 0] += np.log1p(forth[which, i] / positive)
                losses[which, 1] += np.log1p(back[which, i] / positive)
    return losses, counts
