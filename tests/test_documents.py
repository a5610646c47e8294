"""JSON and TOML of others: values that can be printed and stored, or a reason why not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchplan.files.documents import parse_json, parse_toml

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(VALUES.filter(lambda value: "Infinity" not in json.dumps(value)))
def test_what_json_writes_is_read(value):
    assert parse_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (r'{"a": "\ud800"}', "surrogates not allowed"),
        (r'{"a": [{"\udfff": 1}]}', "surrogates not allowed"),
        (b'"\xed\xa0\x80"', "surrogates not allowed"),
        ("[" * 66 + "]" * 66, "more than 64 levels"),
        ('{"a":' * 900 + "1" + "}" * 900, "more than 64 levels"),
        ("[" * 100_000, "more than 64 levels"),
        ("[1e999]", "1e999 is too large for a float"),
        ("-Infinity", "-Infinity is not a JSON number"),
        ("1" * 5000, "limit"),
        (b"\xff", "decode"),
        ("", "Expecting value"),
    ],
)
def test_json_that_is_none_of_ours(text, reason):
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        parse_json(data)
    assert reason in str(refused.value)
    str(refused.value).encode()


def test_sixty_four_levels_are_read():
    assert json.dumps(parse_json(b"[" * 65 + b"]" * 65)) == "[" * 65 + "]" * 65


def test_names_of_files_may_be_any_text():
    assert parse_json(rb'["\udcff"]', any_text=True) == ["\udcff"]


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 5000, "a = " + "[" * 90 + "]" * 90, ".".join("a" * 5000) + " = 1", "\ufffe ="],
)
def test_toml_that_is_none_of_ours(text):
    with pytest.raises(ValueError):  # noqa: PT011
        parse_toml(text.encode())


def test_toml_in_any_line_ends():
    assert parse_toml(b"[a]\r\nb = 1\r\n") == {"a": {"b": 1}}
