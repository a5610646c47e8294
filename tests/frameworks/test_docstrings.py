"""What is public in the adapters has a docstring."""

import pytest

from tests.docs import test_docstrings as docstrings


@pytest.mark.parametrize("name", sorted(docstrings.FRAMEWORKS))
def test_module_and_its_public_names_have_docstrings(name):
    docstrings.test_module_and_its_public_names_have_docstrings(name)
