"""An HTML page about plans: measured by `batchplan.quality`, drawn by matplotlib."""

from typing import TYPE_CHECKING

from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.report.write import write_report as write_report

__getattr__, __dir__ = lazily(__name__, __file__)
