"""Settings of planners -> plans, each made in its own process -> one ranking."""

from typing import TYPE_CHECKING

from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.comparison.comparing import compare
    from batchplan.comparison.ranking import Comparison
    from batchplan.comparison.settings import Setting, make_setting, read_settings

__all__ = ["Comparison", "Setting", "compare", "make_setting", "read_settings"]

__getattr__ = lazily(__name__, __file__)
