"""Tiles of similarities, less the pairs that a guard forbids: compiled, for the CPU."""

import numpy as np

from batchplan.kernels import njit
from batchplan.quality.losses.exponentials import STEP, exponentials

REASONS = 4  # why a pair is not allowed: similarity, group, duplicate, and any of them


@njit
def forbid(  # type: ignore[no-untyped-def]
    forth, back, judge_forth, judge_back, rows, columns, ceilings, column_ceilings, slack,
    codes, column_codes, broken, column_broken, doubtful,
):  # fmt: skip
    """Turn the similarities of the pairs that break the guard, and of a row with itself, to -inf.

    Args:
        forth, back: float32 (R, W), s_ij and s_ji; W a multiple of `STEP`. May be the same array.
        judge_forth, judge_back: float32 (R, W), what the guard compares; may be the same arrays.
        rows, columns: int64 (R,) and (W,), the rows of the data; -1 for padding.
        ceilings, column_ceilings: float32 (R,) and (W,).
        slack: float32 (R,), the largest error of the difference to a ceiling.
        codes, column_codes: int64 (C, R) and (C, W).
        broken, column_broken: int64 (R,) and (W,), which gain the pairs that break the guard.
        doubtful: int64 (R W,), for the places r W + c of the pairs within the slack, which stay.

    Returns:
        The number of doubtful pairs.
    """
    forbidden, near = np.empty(STEP, np.int32), np.empty(STEP, np.int32)
    count, width = 0, forth.shape[1]
    for r in range(forth.shape[0]):
        for start in range(0, width, STEP):
            there, here = forth[r, start : start + STEP], back[r, start : start + STEP]
            judge_there = judge_forth[r, start : start + STEP]
            judge_here = judge_back[r, start : start + STEP]
            names = columns[start : start + STEP]
            limits = column_ceilings[start : start + STEP]
            # Small loops without branches, which the compiler vectorises.
            for c in range(STEP):
                highest = max(judge_there[c], judge_here[c])
                limit = limits[c] if limits[c] < ceilings[r] else ceilings[r]
                excess = highest - limit
                forbidden[c] = np.int32(excess > slack[r])
                near[c] = np.int32(abs(excess) <= slack[r])
            for k in range(codes.shape[0]):
                others = column_codes[k, start : start + STEP]
                for c in range(STEP):
                    same = np.int32(others[c] == codes[k, r])
                    forbidden[c] |= same
                    near[c] &= np.int32(1) - same
            doubts, sum_ = np.int32(0), np.int32(0)
            for c in range(STEP):
                other = np.int32(names[c] != rows[r]) & np.int32(names[c] >= 0)
                forbidden[c] &= other
                near[c] &= other
                there[c] = -np.inf if forbidden[c] | (np.int32(1) - other) else there[c]
                here[c] = -np.inf if forbidden[c] | (np.int32(1) - other) else here[c]
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


@njit(fastmath={"contract"})
def add_exponentials(forth, back, scale, sums, column_sums):  # type: ignore[no-untyped-def]
    """Add exp(s/tau) of a tile to the sums of its rows and columns, in an order of its own.

    Args:
        forth, back: float32 (R, W), s_ij and s_ji; W a multiple of `STEP`. -inf adds nothing.
        scale: from `scale_of`.
        sums, column_sums: float64 (2, R) and (2, W), x to y and y to x.
    """
    parts, powers = np.empty(STEP, np.float32), np.empty(STEP, np.int32)
    terms, lanes = np.empty(STEP, np.float64), np.empty(STEP, np.float64)
    for way, tile in ((0, forth), (1, back)):
        gains = column_sums[1 - way]  # s_ij is y_j's similarity to x_i
        for r in range(tile.shape[0]):
            lanes[:] = 0
            for start in range(0, tile.shape[1], STEP):
                exponentials(tile[r, start : start + STEP], scale, parts, powers, terms)
                places = gains[start : start + STEP]
                for c in range(STEP):
                    lanes[c] += terms[c]
                    places[c] += terms[c]
            sums[way, r] += lanes.sum()


@njit
def batch_losses(  # type: ignore[no-untyped-def]
    similarities, judged, rows, ceilings, codes, kinds, shift, scale, affected
):
    """The losses of the entries of equal batches over their allowed pairs.

    Args:
        similarities: float64 (batches, B, B), s_ij of the rows of each batch.
        judged: what the guard compares, likewise; may be the same array.
        rows: int64 (batches, B).
        ceilings: float64 (N,).
        codes: int64 (C, N).
        kinds: int64 (C,), the reason of each of the codes; 0 is similarity.
        shift: at least the largest s_ij/tau; exp(-2 shift) must not vanish.
        scale: 1/tau.
        affected: bool (N,), set for the rows of pairs that are not allowed.

    Returns:
        float64 (2,), the sums x to y and y to x; int64 (`REASONS`,), the pairs {i, j} that are not
        allowed by reason, and all of them.
    """
    size = rows.shape[1]
    losses, counts = np.zeros(2), np.zeros(REASONS, np.int64)
    forth, back = np.empty(size), np.empty(size)
    for b in range(rows.shape[0]):
        tile, judge, own = similarities[b], judged[b], rows[b]
        forth[:], back[:] = 0, 0
        for i in range(size):
            row = own[i]
            for j in range(i):
                other = own[j]
                highest = max(judge[i, j], judge[j, i])
                reasons = np.int64(highest >= min(ceilings[row], ceilings[other]))
                for k in range(codes.shape[0]):
                    reasons |= np.int64(codes[k, row] == codes[k, other]) << kinds[k]
                if row == other or reasons == 0:
                    there = np.exp(tile[i, j] * scale - shift)
                    here = np.exp(tile[j, i] * scale - shift)
                    forth[i] += there
                    back[j] += there
                    forth[j] += here
                    back[i] += here
                else:
                    for reason in range(REASONS - 1):
                        counts[reason] += (reasons >> reason) & 1
                    counts[-1] += 1
                    affected[row] = affected[other] = True
        for i in range(size):
            positive = np.exp(tile[i, i] * scale - shift)
            losses[0] += np.log1p(forth[i] / positive)
            losses[1] += np.log1p(back[i] / positive)
    return losses, counts
