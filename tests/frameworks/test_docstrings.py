"""What is public in the adapters has a docstring."""

from tests.docs.test_docstrings import FRAMEWORKS, undocumented


def test_modules_and_their_public_names_have_docstrings():
    assert [one for name in FRAMEWORKS for one in undocumented(name)] == []
