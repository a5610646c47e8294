"""Which rows must not share a batch: likely false negatives, groups and equal rows."""

from typing import TYPE_CHECKING

from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.guard.guard import Guard as Guard
    from batchplan.guard.guard import group_codes as group_codes
    from batchplan.guard.guard import guard_of as guard_of
    from batchplan.guard.guard import make_guard as make_guard

__getattr__, __dir__ = lazily(__name__, __file__)
