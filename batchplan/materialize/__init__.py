"""Writes data sets in the order of a plan, for loaders that only stream."""

from typing import TYPE_CHECKING

from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.materialize.layouts import lay_out as lay_out
    from batchplan.materialize.materializing import Materialized as Materialized
    from batchplan.materialize.materializing import materialize as materialize

__getattr__, __dir__ = lazily(__name__, __file__)
