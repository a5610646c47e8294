"""Makes a table of all rows of a plan for embedding-atlas, which draws a million of them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from batchplan.data import Embeddings
from batchplan.data.texts import load_texts
from batchplan.plans import Plan
from batchplan.quality.losses.in_batches import MOST, batch_statistics, equal_batches, gather
from batchplan.quality.pairs import Pairs
from batchplan.quality.rows import MeasuredRows, spans
from batchplan.runtime import Runtime
from batchplan.typing import Float64Array, Int64Array

_NEIGHBORS = 10  # of a row
_LONGEST = 500  # characters of a text
_AT_ONCE = 4096  # rows


def atlas_table(
    plan: Plan,
    embeddings: Embeddings,
    pairs: Pairs,
    runtime: Runtime,
    texts: Sequence[str] = (),
    text_table: str | None = None,
) -> pa.Table:
    """Return a table with one row for each row of the data, in their order.

    Columns: ``projection_x`` and ``projection_y``, the first two principal components of x;
    ``neighbors``, the ten hardest negatives of the row in its batch: ``ids`` from 0, and
    ``distances``, 1 less the similarity; ``batch``, from 1; ``loss``, the mean of both directions
    in nats; ``text`` and ``positive_text``, the first 500 characters. A row of several batches has
    the first of them, and a row of none has nulls.

    Args:
        pairs: all pairs of the data, without a guard.
        texts, text_table: as `batchplan.report.write_report` takes them.

    Raises:
        InputError: as `load_texts`.
    """
    n, rows, offsets = pairs.num_rows, plan.rows, plan.batch_offsets
    entry = np.full(n, -1)
    entry[rows[::-1]] = np.arange(len(rows))[::-1]  # the first one of each row
    place = pa.array(entry, mask=entry < 0)
    forth, back, _ = batch_statistics(pairs, rows, offsets)
    with runtime.stage("atlas", plan.num_batches) as advance:
        neighbors = _hardest(pairs, rows, offsets, advance)
    across, up = principal_components(pairs.x).T
    columns: dict[str, Any] = {
        "projection_x": across, "projection_y": up, "neighbors": neighbors.take(place),
        "batch": pa.array(np.repeat(np.arange(1, len(offsets)), np.diff(offsets))).take(place),
        "loss": pa.array((forth.losses() + back.losses()) / 2).take(place),
    }  # fmt: skip
    for name, column, sides in zip(("text", "positive_text"), texts, ("xy", "yx"), strict=False):
        if not column:
            continue
        found = load_texts(column, embeddings, np.arange(n), text_table, sides)
        columns[name] = [found[row][:_LONGEST] for row in range(n)]
    return pa.table(columns)


def principal_components(side: MeasuredRows) -> Float64Array:
    """Return the first two principal components of rows, float64 (N, 2).

    The largest weight of each is positive, so that the same rows give the same signs.
    """
    read = [np.arange(*span) for span in spans(side.num_rows, _AT_ONCE)]
    mean = sum(side.gather(rows).sum(0) for rows in read) / side.num_rows
    centred = (side.gather(rows) - mean for rows in read)
    covariance = sum((block.T @ block for block in centred), torch.zeros(()))
    axes = torch.linalg.eigh(covariance)[1].flip(1)[:, :2]
    axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    axes = torch.nn.functional.pad(axes, (0, 2 - axes.shape[1]))  # of vectors of one dimension
    return np.concatenate([((side.gather(rows) - mean) @ axes).cpu().numpy() for rows in read])


def _hardest(
    pairs: Pairs, rows: Int64Array, offsets: Int64Array, advance: Callable[[int], None]
) -> pa.StructArray:
    """Return the hardest negatives of each entry of a plan, hardest first."""
    counts = np.repeat(np.minimum(np.diff(offsets) - 1, _NEIGHBORS), np.diff(offsets))
    ids = np.zeros((len(rows), _NEIGHBORS), np.int64)
    distances = np.zeros((len(rows), _NEIGHBORS), np.float32)
    for entries in equal_batches(offsets, pairs.x.dim):
        members, size = rows[entries], entries.shape[1]
        documents, kept = gather(pairs.y, members), min(_NEIGHBORS, size - 1)
        for start, stop in spans(size, max(1, MOST // size)):
            similar = gather(pairs.x, members[:, start:stop]) @ documents.mT
            similar.diagonal(start, dim1=1, dim2=2).fill_(-torch.inf)
            values, order = similar.sort(stable=True, descending=True)
            at, places = entries[:, start:stop], order[..., :kept].cpu().numpy()
            ids[at, :kept] = np.take_along_axis(members[:, None], places, 2)
            distances[at, :kept] = 1 - values[..., :kept].cpu().numpy()
        advance(len(entries))
    used = np.arange(_NEIGHBORS) < counts[:, None]
    ends = pa.array(np.append(0, np.cumsum(counts)), pa.int32())
    lists = [pa.ListArray.from_arrays(ends, one[used]) for one in (ids, distances)]
    return pa.StructArray.from_arrays(lists, ["ids", "distances"])
