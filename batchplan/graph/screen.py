"""Tiles of X Y^T through the matrix units, with a rigorous bound on what low precision may hide.

A tile is one matrix product in a fast type (bfloat16 where the machine multiplies it fast, float32
elsewhere) of augmented rows, arranged so that the *sign* of each entry answers the question "can
this similarity reach the threshold?":

    entry(i, j) = z_i . w_j  +  x_i . nu - t + err_i  +  (y_j - nu) . mu
                = x_i . y_j - t + err_i + (something of size at most err_i)

with z = x - mu and w = y - nu the rows less the column means mu and nu, rounded to the fast type.
Centring matters: embeddings share a large common direction, and rounding errors grow with the
length of what is rounded. The terms that depend on i alone or on j alone are four extra columns
(each term split into two numbers of the fast type). So the product itself adds them in float32, and
near the threshold the entry is small, where bfloat16 is dense.

err_i bounds every error of entry (i, .), by Cauchy-Schwarz on the actual rounding residues, plus
the accumulation error of a float32 dot product (Higham 2002, section 3.1):

    |x_i . y_j - (z~_i . w~_j + ...)|  <=  |z_i - z~_i| max|w~| + |z_i| max|w - w~| + accumulation

If each row and each column has its own threshold, t is a number near them, and an entry is compared
with `least_entry` of the threshold instead of zero.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.data.rows import load_rows
from batchplan.kernels import LANES, njit, ordered, processor
from batchplan.threads import in_blocks

ALIGNMENT = LANES  # tiles are a multiple of this wide
_EXTRA_COLUMNS = 4
_STEP = 32  # bfloat16 numbers that matrix units multiply at once
_BELOW_ALL = -3e38  # below any sum of a few products, which are within 1e37
_LOWEST = -1e38  # between the two
_AT_ONCE = 1024  # rows; keeps temporaries within the cache


def screening_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the hardware multiplies it faster than float32, else float32."""
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
        fast = any(getattr(torch.cpu, probe, lambda: False)() for probe in probes)
        told = torch.backends.cpu.get_cpu_capability()  # less, by ATEN_CPU_CAPABILITY
        fast &= told not in ("DEFAULT", "NO AVX", "AVX2")
    return torch.bfloat16 if fast else torch.float32


def arithmetic(device: torch.device) -> str:
    """The kind of processor, the instructions that torch chooses, the screening type and the kind
    of card: all that the last digits of sums depend on."""
    kind = f"{processor()} {torch.backends.cpu.get_cpu_capability()} {screening_dtype(device)}"
    kind = kind.replace("torch.", "")
    return f"{kind} {torch.cuda.get_device_name(device)}" if device.type == "cuda" else kind


@dataclass(frozen=True, eq=False)
class Keys:
    """All rows of Y, ready for screening.

    Attributes:
        rows: float32 (N, d), for exact rescoring.
        operand: (N', d') in the screening type. N' is N rounded up to `ALIGNMENT`; the rows from N
            on give entries far below zero. d' is `screen_width`; the columns from d + 4 on are 0.
        query_mean, key_mean: float32 (d,): mu and nu.
        longest, residue, offset, length: the largest |w~_j|, |w_j - w~_j|, |(y_j - nu) . mu| and
            |y_j|.
    """

    rows: torch.Tensor
    operand: torch.Tensor
    query_mean: torch.Tensor
    key_mean: torch.Tensor
    longest: float
    residue: float
    offset: float
    length: float

    def among(self, columns: NDArray[np.int64]) -> "Keys":
        """Some of the rows, renumbered in the given order."""
        some = torch.from_numpy(columns).to(self.rows.device)
        operand = self.operand.new_zeros((_aligned(len(some)), self.operand.shape[1]))
        operand[: len(some)] = self.operand[some]
        operand[len(some) :, self.rows.shape[1] + 2] = _BELOW_ALL
        return replace(self, rows=self.rows[some], operand=operand)


def load_keys(
    embeddings: Embeddings,
    device: torch.device,
    dtype: torch.dtype,
    normalize: bool,
    advance: Callable[[int], None],
) -> Keys:
    """All rows of y, centred by the means of both sides.

    ``advance`` is called with the rows of both sides.
    """
    n, d = embeddings.num_rows, embeddings.dim
    rows = torch.empty((n, d), device=device)
    sums = torch.empty((-(-n // _AT_ONCE), d), dtype=torch.float64, device=device)

    def add_up(start: int, stop: int) -> None:
        rows[start:stop] = load_rows(embeddings.y, start, stop, device, normalize)
        sums[start // _AT_ONCE] = rows[start:stop].sum(0)

    def add_up_others(start: int, stop: int) -> None:
        loaded = load_rows(embeddings.x, start, stop, device, normalize)
        sums[start // _AT_ONCE] = loaded.sum(0)

    in_blocks(add_up, n, _AT_ONCE, advance, device)
    query_mean = key_mean = (sums.sum(0) / n).float()
    if embeddings.paired:
        in_blocks(add_up_others, n, _AT_ONCE, advance, device)
        query_mean = (sums.sum(0) / n).float()
    return keys_from(rows, query_mean, key_mean, dtype)


def keys_from(
    rows: torch.Tensor, query_mean: torch.Tensor, key_mean: torch.Tensor, dtype: torch.dtype
) -> Keys:
    """Round and augment all key rows; see the docstring of this module."""
    n, d = rows.shape
    operand = torch.zeros((_aligned(n), screen_width(d, dtype)), dtype=dtype, device=rows.device)
    operand[n:, d + 2] = _BELOW_ALL
    largest = torch.zeros((-(-n // _AT_ONCE), 4), device=rows.device)

    def prepare(start: int, stop: int) -> None:
        chunk, out = rows[start:stop], operand[start:stop]
        centred = chunk - key_mean
        rounded = centred.to(dtype)
        offset = ((chunk.double() - key_mean.double()) @ query_mean.double()).float()
        out[:, :d] = rounded
        out[:, d : d + 2] = 1
        out[:, d + 2 : d + 4] = _split(offset, dtype)
        kept = rounded.float()
        vectors = kept, centred - kept, chunk  # not in place: in float32, kept is centred itself
        longest, residue, length = (part.norm(dim=1).max() for part in vectors)
        largest[start // _AT_ONCE] = torch.stack([longest, residue, offset.abs().max(), length])

    in_blocks(prepare, n, _AT_ONCE, device=rows.device)
    longest, residue_, offset_, length = largest.amax(0).tolist()
    return Keys(rows, operand, query_mean, key_mean, longest, residue_, offset_, length)


@dataclass(frozen=True, eq=False)
class Queries:
    """A block of rows of X, ready to multiply with `Keys`.

    Attributes:
        rows: float32 (R, d), for exact rescoring.
        operand: (R, d') in the screening type.
        error: float32 (R,), err_i.
        certain: an entry above this proves a similarity above the upper threshold.
        dot_error: the largest error of a float32 dot product, summed in any order.
        hopeless, sure: such a product below ``hopeless`` proves a similarity below the lower
            threshold, and one above ``sure`` a similarity above the upper threshold.
    """

    rows: torch.Tensor
    operand: torch.Tensor
    error: torch.Tensor
    certain: float
    dot_error: float
    hopeless: float
    sure: float


def queries_from(rows: torch.Tensor, keys: Keys, lower: float, upper: float) -> Queries:
    """Round and augment query rows, so that a pair that may reach ``lower`` has a positive entry.

    Entries above ``certain`` surely exceed ``upper``; only those below need scores.
    """
    d = rows.shape[1]
    dtype = keys.operand.dtype
    longest = float(rows.norm(dim=1).max())
    lower = max(lower, -1.01 * longest * keys.length)  # no similarity is less
    centred = rows - keys.query_mean
    rounded = centred.to(dtype)
    length = centred.norm(dim=1)
    offset = (rows.double() @ keys.key_mean.double() - lower).float()
    residue = (centred - rounded.float()).norm(dim=1)
    # d + 8 products and sums, each off by 2^-24 at most; doubled for the rounding of this sum.
    sums = length * keys.longest + offset.abs() + keys.offset
    error = residue * keys.longest + length * keys.residue + (d + 8) * 2.0**-23 * sums
    # _split keeps a number to 2^-16 of its size (bfloat16 twice); the float32 split is finer.
    error += 2.0**-15 * (offset.abs() + error + keys.offset)
    # A score just below the limit may be rounded up to it, to float32.
    error += 2.0**-23 * abs(lower)
    operand = torch.zeros((rows.shape[0], keys.operand.shape[1]), dtype=dtype, device=rows.device)
    operand[:, :d] = rounded
    operand[:, d : d + 2] = _split(offset + error, dtype)
    operand[:, d + 2 : d + 4] = 1
    # The entry itself is rounded once to the fast type, by 2^-8 of its size at most.
    certain = (2 * float(error.max()) + upper - lower + 2.0**-23 * abs(upper)) * (1 + 2.0**-6)
    dot_error = (d + 8) * 2.0**-23 * longest * keys.length
    rough = dot_error, lower - dot_error, upper + dot_error
    return Queries(rows, operand, error, certain, *rough)


def screen_width(dim: int, dtype: torch.dtype) -> int:
    """Columns of an operand: a whole number of steps of the matrix units, which are slow on a part
    of a step."""
    width = dim + _EXTRA_COLUMNS
    return width + -width % _STEP if dtype == torch.bfloat16 else width


def _aligned(width: int) -> int:
    return width + -width % ALIGNMENT


def _split(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """(n, 2): two numbers of ``dtype`` whose sum is each value, to twice the precision."""
    high = values.to(dtype)
    low = (values - high.float()).to(dtype)
    return torch.stack([high, low], dim=1)


@njit
def least_entry(similarity, middle, dropped):  # type: ignore[no-untyped-def]
    """The `ordered` bits that the entry of every pair with at least this similarity reaches.

    Args:
        middle: t of the tiles.
        dropped: how many bits fewer than float32 the screening type has.
    """
    # The score was rounded to float32, and this sum will be.
    above = np.float64(similarity) - middle
    above -= 2.0**-22 * (abs(np.float64(similarity)) + abs(above))
    bits = ordered(np.float32(max(above, _LOWEST)).view(np.int32))
    # Rounded down: a float below zero is the highest of those that have its upper bits.
    return (bits if bits >= 0 else bits - (1 << dropped) + 1) >> dropped


@njit
def sure_entry(similarity, middle, error, dropped):  # type: ignore[no-untyped-def]
    """The `ordered` bits that only entries of pairs with at least this similarity reach, if err_i
    is at most ``error``."""
    above = np.float64(similarity) - middle + 2 * error
    above += 2.0**-22 * abs(np.float64(similarity)) + 2.0**-7 * abs(above)
    bits = ordered(np.float32(above).view(np.int32))
    return (bits if bits < 0 else bits + (1 << dropped) - 1) >> dropped  # rounded up
