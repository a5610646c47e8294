"""What the tests of plan files share."""

import pytest

from batchplan import InputError
from batchplan.plans import Plan


@pytest.fixture
def refused():
    """A function that loads a file, and wants one line naming its path and holding all parts."""

    def load(path, *parts, **arguments):
        with pytest.raises(InputError) as error:
            Plan.load(path, **arguments)
        message = str(error.value)
        assert "\n" not in message
        for part in (str(path), *parts):
            assert part in message

    return load
