"""Compiled kernels of the guard, for the CPU."""

import numpy as np

from batchplan.kernels import njit
from batchplan.quality.losses.exponentials import STEP


@njit
def hide(  # type: ignore[no-untyped-def]
    tile, forth, back, ceilings, column_ceilings, codes, column_codes, hidden, broken,
    column_broken,
):  # fmt: skip
    """Mark and count the pairs of a tile that break the guard.

    Args:
        tile: float32 (R, W), -inf for pairs that do not exist; W a multiple of `STEP`.
        forth, back: float32 (R, W), s_ij and s_ji that the guard compares; may be the same array.
        ceilings, column_ceilings: float32 (R,) and (W,).
        codes, column_codes: int64 (C, R) and (C, W).
        hidden: uint8 (R, W), 1 for known answers and 0 for others; it becomes 1 for all of these
            pairs.
        broken, column_broken: int64 (R,) and (W,), which gain these pairs.
    """
    forbidden = np.empty(STEP, np.int32)
    for r in range(tile.shape[0]):
        for start in range(0, tile.shape[1], STEP):
            there, here = forth[r, start : start + STEP], back[r, start : start + STEP]
            exists = tile[r, start : start + STEP]
            limits = column_ceilings[start : start + STEP]
            marks = hidden[r, start : start + STEP]
            # Small loops without branches, which the compiler vectorises.
            for c in range(STEP):
                highest = max(there[c], here[c])
                limit = limits[c] if limits[c] < ceilings[r] else ceilings[r]
                forbidden[c] = np.int32(highest >= limit) | np.int32(marks[c])
                forbidden[c] &= np.int32(exists[c] > -np.inf)
            for k in range(codes.shape[0]):
                others = column_codes[k, start : start + STEP]
                for c in range(STEP):
                    same = np.int32(others[c] == codes[k, r]) & np.int32(exists[c] > -np.inf)
                    forbidden[c] |= same
            sum_ = np.int32(0)
            for c in range(STEP):
                marks[c] = np.uint8(forbidden[c])
                sum_ += forbidden[c]
            broken[r] += sum_
            for c in range(STEP):
                column_broken[start + c] += forbidden[c]
