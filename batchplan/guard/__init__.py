"""Which rows must not share a batch: likely false negatives, groups and equal rows."""

from typing import TYPE_CHECKING

from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.guard.guard import guard_of as guard_of

__getattr__, __dir__ = lazily(__name__, __file__)
