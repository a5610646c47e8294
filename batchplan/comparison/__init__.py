"""`compare`: make a plan with each setting, in its own process, and rank the plans."""

from typing import TYPE_CHECKING

from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.comparison.comparing import compare as compare
    from batchplan.comparison.comparing import compare_settings as compare_settings
    from batchplan.comparison.ranking import Comparison as Comparison
    from batchplan.comparison.settings import Setting as Setting
    from batchplan.comparison.settings import make_setting as make_setting
    from batchplan.comparison.settings import read_settings as read_settings

__getattr__, __dir__ = lazily(__name__, __file__)
