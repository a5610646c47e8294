"""`evaluate` of a table of negatives: the uniform sampling that would show the same negatives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from batchplan.cli.console import facts, print_out
from batchplan.cli.options import print_json
from batchplan.data import Embeddings
from batchplan.plans.negatives import Negatives
from batchplan.quality.coupons import uniform_draws_to_see


def show_negatives(
    path: str,
    embeddings: Embeddings,
    *,
    batch_size: int | None,
    codes: Mapping[str | None, Any],
    json: bool,
) -> None:
    """Print the figures of the table at ``path``; ``codes`` of labels or groups, by column.

    Raises:
        InputError: the table is broken or of other data, or a batch size out of range.
    """
    table = Negatives.load(path)
    table.require_match(embeddings.num_rows, embeddings.fingerprint)
    figures = uniform_draws_to_see(table, embeddings.num_rows, batch_size)
    shares = {
        column: _same(table, one) for column, one in codes.items() if column and one is not None
    }
    if json:
        return print_json({"planner": table.metadata.planner, **figures, "false_negatives": shares})
    size = figures["batch_size"]
    rows = [
        ("negatives", f"{table.per_anchor} for each of {len(table):,} rows"),
        ("rows that are negatives", f"{figures['rows_used']:,} of {embeddings.num_rows:,}"),
        ("uniform draws to see them", f"{figures['expected_draws']:,.0f} a row"),
        ("uniform batches to see them", f"{figures['expected_batches']:,.1f} of {size} a row"),
        ("uniform epochs to see them", f"{figures['expected_epochs']:,.1f} in batches of {size}"),
    ]
    rows += [(f"same {name}", f"{share:.2%} of the negatives") for name, share in shares.items()]
    print_out(facts(rows))


def _same(table: Negatives, codes: Any) -> float:
    """The share of negatives that have their anchor's code: false negatives."""
    own = codes[table.anchors][:, None]
    return float(np.mean((codes[table.negatives] == own) & (own >= 0)))
