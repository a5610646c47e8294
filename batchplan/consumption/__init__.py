"""Compares what training steps saw with plans. Shares no code with the samplers that it judges."""

from typing import TYPE_CHECKING

from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.consumption.traces import Trace as Trace
    from batchplan.consumption.verifying import Consumption as Consumption
    from batchplan.consumption.verifying import verify as verify

__getattr__, __dir__ = lazily(__name__, __file__)
