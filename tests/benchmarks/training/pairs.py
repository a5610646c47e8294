"""Pairs of a docstring and its function's body, from the Python code that this machine has.

No text comes with the repository: the standard library and the installed packages are the data.
Results of two machines are therefore near each other, not equal.
"""

from __future__ import annotations

import ast
import hashlib
import sysconfig
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

CACHE = Path(tempfile.gettempdir()) / "batchplan-training"
DOCSTRING_WORDS, CODE_CHARACTERS = (4, 200), (60, 4000)  # at least, at most


def pairs() -> pa.Table:
    """Columns docstring, code, group (file) and source (package), in an order that a hash draws.

    Any run of rows is thus a random sample, and the same one in every run on this machine.
    """
    files = list(_files())
    sizes = [f"{source}/{name} {path.stat().st_size}" for path, source, name in files]
    kept = CACHE / f"{digest(*sizes)}.parquet"
    if not kept.exists():
        rows = {digest(docstring, code): (docstring, code, name, source)
                for path, source, name in files for docstring, code in functions(path)}  # fmt: skip
        columns = zip(*(rows[key] for key in sorted(rows)), strict=True)
        names = ["docstring", "code", "group", "source"]
        CACHE.mkdir(exist_ok=True)
        table = pa.table(dict(zip(names, map(pa.array, columns), strict=True)))
        pq.write_table(table, kept.with_suffix(".part"))
        kept.with_suffix(".part").rename(kept)  # whole, even where two runs make it
    return pq.read_table(kept)


def _files() -> Iterator[tuple[Path, str, str]]:
    """Path, package and name of each source file, without tests."""
    packages, library = (Path(sysconfig.get_path(name)) for name in ("purelib", "stdlib"))
    for root in (packages, library):
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).parts
            installed = root == library and parts[0] in ("site-packages", "dist-packages")
            if not installed and not any("test" in part.lower() for part in parts):
                yield path, parts[0].removesuffix(".py"), "/".join(parts)


def functions(path: Path) -> Iterator[tuple[str, str]]:
    """The docstring and the rest of the body of each function of a file that has both."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other people's escapes
            tree = ast.parse(path.read_text())
    except (SyntaxError, ValueError):  # code for another Python, another encoding
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        docstring = ast.get_docstring(node)
        if docstring is None or not _within(len(docstring.split()), DOCSTRING_WORDS):
            continue
        code = "\n".join(ast.unparse(statement) for statement in node.body[1:])
        if _within(len(code), CODE_CHARACTERS):
            yield docstring, code


def _within(size: int, limits: tuple[int, int]) -> bool:
    return limits[0] <= size <= limits[1]


def digest(*texts: str) -> str:
    return hashlib.blake2b("\0".join(texts).encode(errors="replace"), digest_size=16).hexdigest()
