"""Text from outside takes time in proportion to its length, whatever it is like."""

import ast
import importlib
import re
import time
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchplan
from batchplan.errors import InputError
from batchplan.files.documents import parse_json, parse_toml
from batchplan.files.remote import is_url
from batchplan.runtime import parse_memory
from batchplan.text import check_urls, clean, keyed_url, meant, one_line

PACKAGE = Path(batchplan.__file__).parent
LONG, SHORT = 1 << 18, 1 << 14
# Letters, digits, what URLs, numbers, markup and commands of CI runners are made of, spaces, and
# characters that no terminal shows; then longer pieces that nearly match.
PIECES = [
    *"Z0+.-:/@?&=#_ \n\"'\\[", "\0", "\x1b[31m", "\u0301", "\udcff", "ab:/", "gs://a", "##vso[",
    " at 0x", "index 1", "negative_", "all lists to be of size=1", "trace.1",
]  # fmt: skip
# A quadratic scan takes 0.5 s and more for `SHORT` and minutes for `LONG`, others 2 and 30 ms.
PATIENCE = {SHORT: 0.2, LONG: 2.0}
USED = "match", "fullmatch", "search", "findall", "finditer", "split", "sub"


def uses():
    """Every use of a regular expression in the package: its place, the pattern and the method."""
    for path in sorted(PACKAGE.rglob("*.py")):
        relative, patterns = path.relative_to(PACKAGE), {}
        nodes = [*ast.walk(ast.parse(path.read_bytes()))]
        for node in nodes:
            if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("re.compile("):
                module = importlib.import_module(
                    ".".join(["batchplan", *relative.with_suffix("").parts])
                )
                patterns[node.targets[0].id] = getattr(module, node.targets[0].id)
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner, method = ast.unparse(node.func.value), node.func.attr
                if method in USED and (owner == "re" or owner in patterns):
                    pattern = patterns.get(owner) or re.compile(ast.literal_eval(node.args[0]))
                    yield pytest.param(pattern, method, id=f"{relative}:{node.lineno}")


def texts(pairs):
    """Repeated pieces, and pairs of pieces that are repeated or follow one another."""
    for piece in PIECES:
        yield piece * (LONG // len(piece)), PATIENCE[LONG]
    for a, b in product(PIECES, repeat=2) if pairs else ():
        half = SHORT // 2
        yield (a + b) * (SHORT // len(a + b)), PATIENCE[SHORT]
        yield a * (half // len(a)) + b * (half // len(b)), PATIENCE[SHORT]


def require_linear(work, pairs=True):
    for text, patience in texts(pairs):
        began = time.process_time()
        with suppress(InputError, ValueError):
            work(text)
        taken = time.process_time() - began
        assert taken < patience, f"{taken:.2f} s for {len(text):,} characters of {text[:40]!r}"


def as_bytes(text):
    return text.encode(errors="surrogateescape")


@pytest.mark.parametrize(("pattern", "method"), [*uses()])
def test_a_regular_expression(pattern, method):
    if method == "split":
        pattern, method = re.compile(pattern.pattern), "finditer"
    convert = as_bytes if isinstance(pattern.pattern, bytes) else str
    more = [b"" if convert is as_bytes else ""] if method == "sub" else []

    def work(text):
        found = getattr(pattern, method)(*more, convert(text))
        for _ in found if method == "finditer" else ():
            pass

    require_linear(work)


FUNCTIONS = {
    "one_line": one_line,
    "clean": clean,
    "keyed_url": keyed_url,
    "check_urls": lambda text: check_urls({"a": [text, {text: 1}]}),
    "meant": lambda text: meant(text, ["planner", "batch_size"]),
    "is_url": is_url,
    "parse_memory": parse_memory,
    "parse_json": lambda text: parse_json(as_bytes(text)),
    "parse_json, a text": lambda text: parse_json(as_bytes(f'["{text}"]')),
    "parse_toml": lambda text: parse_toml(as_bytes(f"{text}=1")),
    "parse_toml, a table": lambda text: parse_toml(as_bytes(f"[{text}]")),
    "parse_toml, a value": lambda text: parse_toml(as_bytes(f"a={text}")),
    "parse_toml, a text": lambda text: parse_toml(as_bytes(f"a='{text}'")),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function(name):
    require_linear(FUNCTIONS[name], pairs=name in ("keyed_url", "parse_toml"))


# What `keyed_url` is defined as: by each URL, with the rest of the text.
URL = re.compile(r"([A-Za-z0-9+.-]{2,}):/+")
USER = re.compile(r"(?:hdfs|viewfs|gs|gcs|abfss?)://[^/?#:@]+@", re.IGNORECASE)
PASSWORD = re.compile(r"@|^[^/?#]*:(?!\d*(?:[/?#]|\Z))")
TEXTS = st.lists(
    st.sampled_from(
        [*":/@?&=# 8Z", "s3://", "gs://", "file:///", "FILE://", "region", "scheme=", "host:80"]
    )
).map("".join)


@given(TEXTS)
def test_a_url_with_keys_is_found_as_defined(text):
    expected = ""
    for url in URL.finditer(text):
        start = USER.match(text, url.start()) or url
        rest = text[start.end() :]
        names = {part.partition("=")[0] for part in rest.partition("?")[2].split("&")}
        local = url[0].lower() == "file:///"
        if names - {"", "region", "scheme"} or (PASSWORD.search(rest) and not local):
            expected = url[1]
            break
    assert keyed_url(text) == expected[-20:]
