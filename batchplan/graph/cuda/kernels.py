"""Triton kernels: they screen tiles of X Y^T in registers, and list and score the candidates.

The screen writes a bit for each pair that says whether it may reach its limit. So its output is
1/32 of the product in float32: 125 GB for 10^6 x 10^6 pairs, or 0.1 s of an H100's memory. Bits
need no atomic cursor and no buffer that may overflow. They are counted before room for candidates
is allocated, and listed by row, then by column, so nothing depends on the order in which programs
run.

Everything here also runs in Triton's interpreter (``TRITON_INTERPRET=1``, set before triton is
imported), where tensors are on the CPU and products of bfloat16 are wrong.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,name-defined,attr-defined"
# What Triton compiles carries no types.

from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from threading import Lock

import torch
import triton
import triton.language as tl


@dataclass(frozen=True)
class Tile:
    """The rows and columns that a program multiplies, and their depth at a time.

    128 x 256 entries take 128 registers of each of 8 warps, and 0.012 bytes of L2 traffic per
    multiply-add. A step of 64 bfloat16 is a line of 128 bytes of each row. Rows must be a multiple
    of 16, and columns of 32.
    """

    rows: int = 128
    columns: int = 256
    depth: int = 64
    warps: int = 8


_TILE = Tile()
_FLOAT32_TILE = Tile(64, 128, 32)  # without matrix units: more of these spill registers
_ROWS, _WORDS = 16, 64  # of bits that a program counts or lists at a time
_PAIRS, _DEPTH = 32, 128  # that a program scores, and dimensions at a time
_launching = Lock()


def tile_of(dtype: torch.dtype) -> Tile:
    """The tile to screen with in this type."""
    return _FLOAT32_TILE if dtype == torch.float32 else _TILE


# Numbers that vary between strips are not specialised, or each of them would be compiled.
@triton.jit(do_not_specialize=["words_per_row", "row_tiles", "first_tile"])
def _screen(
    queries, keys, row_terms, column_terms, row_limits, column_limits, words,
    depth, words_per_row, row_tiles, first_tile,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A bit for each pair: whether its entry reaches the lower of its two limits.

    Neighbouring programs share columns: the strip of queries stays in the L2 cache, and the keys
    stream through it once per strip.
    """
    program = tl.program_id(0)
    row = (program % row_tiles) * ROWS + tl.arange(0, ROWS)
    column_tile = program // row_tiles
    # Place p of a tile holds column 32 (p mod W) + p div W of its 32 W columns. A thread holds
    # places 8 j + c of a row for all j, so it packs the 32 columns of word c in its registers.
    W: tl.constexpr = COLUMNS // 32
    place = tl.arange(0, COLUMNS)
    column = (first_tile + column_tile) * COLUMNS + (place % W) * 32 + place // W
    inner = tl.arange(0, DEPTH)
    a = queries + row.to(tl.int64)[:, None] * depth + inner[None, :]
    b = keys + column.to(tl.int64)[None, :] * depth + inner[:, None]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for _ in range(0, depth, DEPTH):
        total = tl.dot(tl.load(a), tl.load(b), total, input_precision=PRECISION)
        a += DEPTH
        b += DEPTH
    entry = total + (tl.load(row_terms + row)[:, None] + tl.load(column_terms + column)[None, :])
    limit = tl.minimum(tl.load(row_limits + row)[:, None], tl.load(column_limits + column)[None, :])
    bits = (entry >= limit).to(tl.uint32) << (place // W).to(tl.uint32)[None, :]
    packed = tl.sum(tl.reshape(bits, (ROWS, 32, W)), 1)  # no two share a bit
    word = column_tile * W + tl.arange(0, W)
    out = words + row.to(tl.int64)[:, None] * words_per_row + word[None, :]
    tl.store(out, packed.to(tl.int32, bitcast=True))


@triton.jit
def _bits_of(word):
    """How many bits of a uint32 are set (Warren, Hacker's Delight, section 5-1)."""
    word = word - ((word >> 1) & 0x55555555)
    word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
    word = (word + (word >> 4)) & 0x0F0F0F0F
    return ((word * 0x01010101) >> 24).to(tl.int32)


@triton.jit(do_not_specialize=["num_rows", "words_per_row"])
def _count(words, counts, num_rows, words_per_row, ROWS: tl.constexpr, WORDS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, WORDS), tl.int32)
    for start in range(0, words_per_row, WORDS):
        total += _bits_of(_words(words, row, start + tl.arange(0, WORDS), num_rows, words_per_row))
    tl.store(counts + row, tl.sum(total, 1), row < num_rows)


@triton.jit(do_not_specialize=["num_rows", "words_per_row", "first_row", "first_column"])
def _list(
    words, begins, rows, columns, num_rows, words_per_row, first_row, first_column,
    ROWS: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """Write the row and column of each set bit. A row's bits are written from its ``begins`` on."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    begin = tl.load(begins + row, row < num_rows, 0)
    numbers = first_row + row[:, None] + tl.zeros((ROWS, WORDS), tl.int32)
    for start in range(0, words_per_row, WORDS):
        at = start + tl.arange(0, WORDS)
        word = _words(words, row, at, num_rows, words_per_row)
        bits = _bits_of(word)
        place = begin[:, None] + tl.cumsum(bits, 1) - bits
        begin += tl.sum(bits, 1)
        for _ in range(0, tl.max(bits)):
            left = word != 0
            lowest = _bits_of((word ^ (word - 1)) >> 1)
            tl.store(columns + place, first_column + at[None, :] * 32 + lowest, left)
            tl.store(rows + place, numbers, left)
            word = word & (word - 1)
            place += 1


@triton.jit
def _words(words, row, at, num_rows, words_per_row):
    valid = (row < num_rows)[:, None] & (at < words_per_row)[None, :]
    word = tl.load(words + row.to(tl.int64)[:, None] * words_per_row + at[None, :], valid, 0)
    return word.to(tl.uint32, bitcast=True)


@triton.jit(do_not_specialize=["first_row", "count"])
def _score(
    x, y, rows, columns, first_row, scores, count, depth, PAIRS: tl.constexpr, DEPTH: tl.constexpr
):
    """Dot products of pairs, summed in float64, where a product of two float32 is exact."""
    pair = tl.program_id(0).to(tl.int64) * PAIRS + tl.arange(0, PAIRS)
    valid = pair < count
    i = tl.load(rows + pair, valid, first_row).to(tl.int64) - first_row
    j = tl.load(columns + pair, valid, 0).to(tl.int64)
    total = tl.zeros((PAIRS, DEPTH), tl.float64)
    for start in range(0, depth, DEPTH):
        inner = start + tl.arange(0, DEPTH)
        within = valid[:, None] & (inner < depth)[None, :]
        left = tl.load(x + i[:, None] * depth + inner[None, :], within, 0.0)
        right = tl.load(y + j[:, None] * depth + inner[None, :], within, 0.0)
        total += left.to(tl.float64) * right.to(tl.float64)
    tl.store(scores + pair, tl.sum(total, 1).to(tl.float32), valid)


def screen(
    queries: torch.Tensor,
    keys: torch.Tensor,
    terms: tuple[torch.Tensor, torch.Tensor],
    limits: tuple[torch.Tensor, torch.Tensor],
    first_tile: int = 0,
) -> torch.Tensor:
    """Which entries ``queries @ keys.T + terms[0][:, None] + terms[1]`` may reach a limit.

    Args:
        queries: (R, D) in the screening type; R, D and N are multiples of the tile's sides.
        keys: (N, D).
        terms: float32 (R,) and (N,), added to the product; -inf for padding.
        limits: float32 (R,) and (N,); an entry counts if it reaches either.
        first_tile: tiles of columns to skip.

    Returns:
        int32 (R, W): bit b of word w of row r stands for entry (r, C first_tile + 32 w + b), C
        being the tile's columns.
    """
    tile = tile_of(keys.dtype)
    row_tiles = len(queries) // tile.rows
    column_tiles = len(keys) // tile.columns - first_tile
    words_per_row = column_tiles * (tile.columns // 32)
    words = torch.empty((len(queries), words_per_row), dtype=torch.int32, device=keys.device)
    _launch(
        _screen, row_tiles * column_tiles, keys.device,
        queries, keys, *terms, *limits, words, queries.shape[1], words_per_row, row_tiles,
        first_tile, tile.rows, tile.columns, tile.depth, "ieee",
        num_warps=tile.warps, num_stages=_stages(tile, keys),
    )  # fmt: skip
    return words


def count(words: torch.Tensor, rows: int) -> torch.Tensor:
    """int32 (rows,): bits set in each of the first ``rows`` rows."""
    counts = torch.empty(rows, dtype=torch.int32, device=words.device)
    sizes = rows, words.shape[1]
    programs = triton.cdiv(rows, _ROWS)
    _launch(_count, programs, words.device, words, counts, *sizes, _ROWS, _WORDS)
    return counts


def list_pairs(
    words: torch.Tensor, counts: torch.Tensor, first_row: int, first_column: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows and columns of all set bits, by row, then by column.

    Args:
        words: int32 (R, W); only the rows of ``counts`` are read.
        counts: int32 or int64, the `count` of each row; below 2^31 in total.
        first_row: the number of row 0.
        first_column: the column of bit 0 of word 0.

    Returns:
        Two int32 tensors.
    """
    ends = counts.cumsum(0)
    total = int(ends[-1])
    rows = torch.empty(total, dtype=torch.int32, device=words.device)
    columns = torch.empty_like(rows)
    _launch(
        _list, triton.cdiv(len(counts), _ROWS), words.device,
        words, ends - counts, rows, columns, len(counts), words.shape[1], first_row, first_column,
        _ROWS, _WORDS,
    )  # fmt: skip
    return rows, columns


def score(
    x: torch.Tensor, y: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor, first_row: int
) -> torch.Tensor:
    """float32 (E,): x_i . y_j of each pair, the rounded float64 sum of exact products.

    Args:
        x: float32 (R, d); row 0 is ``first_row`` of ``rows``.
        y: float32 (N, d).
        rows, columns: int32 (E,).
    """
    scores = torch.empty(len(rows), device=rows.device)
    _launch(
        _score, triton.cdiv(len(rows), _PAIRS), rows.device,
        x, y, rows, columns, first_row, scores, len(rows), x.shape[1], _PAIRS, _DEPTH,
    )  # fmt: skip
    return scores


def _stages(tile: Tile, keys: torch.Tensor) -> int:
    """Steps of depth in flight: as many as fit into the memory of a multiprocessor."""
    if keys.device.type != "cuda":
        return 1
    stage_bytes = (tile.rows + tile.columns) * tile.depth * keys.element_size()
    return max(1, min(4, _shared_memory(keys.device.index or 0) // stage_bytes))


@cache  # the driver takes a millisecond to tell
def _shared_memory(device: int) -> int:
    """Bytes of memory that the threads of a multiprocessor of a device share."""
    properties = triton.runtime.driver.active.utils.get_device_properties(device)
    return int(properties["max_shared_mem"])


def _launch(kernel, programs, device, *arguments, **options):
    """Run ``programs`` copies of a kernel on a device, even if it is not the current one.

    A kernel is compiled at its first launch, and the interpreter patches Triton while it runs.
    Neither may happen in two threads at once.
    """
    if programs == 0:
        return
    context = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    with _launching, context:
        kernel[(programs,)](*arguments, enable_fp_fusion=True, **options)
