"""The options of `materialize`."""

from dataclasses import dataclass
from typing import Literal

from batchplan.options import SHARD_ORDER, ShardOrder, check_options, option

FormatName = Literal["parquet", "arrow", "jsonl", "litdata", "mds", "webdataset"]
Layout = Literal["order", "strided", "rank-major", "ranks", "n-tuple", "triplet"]


@dataclass(frozen=True, kw_only=True)
class MaterializeOptions:
    """How a data set is written in plan order.

    Raises:
        InputError: a value that is not of an option's type or choices, or out of its range.
    """

    format: FormatName = option(
        "parquet", "Format of the files. arrow is for datasets.load_from_disk."
    )
    layout: Layout | None = option(
        None,
        "Rows of several devices: in step order, in turn, one device after the other, or a "
        "folder for each.  [default: order for one device, ranks for more] For a table of "
        "negatives: a row for each anchor, or for each negative.",
    )
    workers: int = option(1, "Workers of each loader; each has its own shards.", ge=1)
    shard_rows: int = option(8192, "Rows of a shard at most, in whole batches.", ge=1, lt=1 << 32)
    column: list[str] | None = option(
        None,
        "Column to keep. Repeatable.  [default: all] For a table of negatives: the column of "
        "anchors, then of positives.",
        kind="column",
    )
    shard_order: ShardOrder | None = SHARD_ORDER
    id_column: str | None = option(
        None,
        "Column of row ids, to compare with a Parquet plan's.  [default: id, if there is one]",
        kind="column",
    )

    def __post_init__(self) -> None:
        check_options(self)
