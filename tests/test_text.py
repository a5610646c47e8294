"""Text from outside, as it is shown."""

import io
import re

from hypothesis import example, given
from hypothesis import strategies as st

from batchplan.text import clean, counted, one_line

# Surrogates too: names of files that are not UTF-8 come with them.
TEXT = st.text(st.characters(exclude_categories=()))


@given(TEXT)
@example("::error::x")
@example("  :::")
@example("###[error]##vso[a]")
@example("\x1b[31m\u202e\u2066\udcff\n")
def test_one_line_is_printable_idempotent_and_no_command(text):
    shown = one_line(text)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    assert one_line(shown) == shown
    assert not re.search(r"^\s*::|##\w*\[", shown)
    shown.encode()
    assert [one_line(line) for line in text.split("\n")] == clean(text).split("\n")


@given(st.text("abc äß日😀()[]{}<>&'\"$\\/.:#_-", max_size=30))
def test_what_is_printable_stays(text):
    if not re.search(r"^\s*::|##\w*\[", text):
        assert one_line(text) == text


@given(st.binary())
def test_any_name_of_a_file_can_be_written_in_ascii(name):
    stream = io.TextIOWrapper(io.BytesIO(), "ascii", "backslashreplace")  # as stderr is
    stream.write(one_line(name.decode("utf-8", "surrogateescape")))
    stream.flush()


def test_one_of_a_kind():
    assert [counted(count, "row") for count in (0, 1, 1.3, 2048)] == [
        "0 rows", "1 row", "1 row", "2,048 rows",
    ]  # fmt: skip
    assert [counted(count, "batch", "batches") for count in (1, 2)] == ["1 batch", "2 batches"]
