"""Files of another kind than expected: what they are by their first bytes, and the way that works.

Code in messages writes ``x`` files next to the input; tests run it.
"""

from contextlib import suppress
from pathlib import Path

from batchplan.errors import BatchplanError, InputError
from batchplan.files.reading import open_regular
from batchplan.files.remote import ShardPath, opened_file

DECRYPT = (
    "it is encrypted: read it with pyarrow.parquet.read_table(path, decryption_properties=...) and "
    "write it again"
)
_PICKLE = (
    "a pickle, which is never loaded because it can run any program",
    "convert it as 'Other files' in docs/formats.md shows",
)
_TORCH = ("as torch saves it, " + _PICKLE[0], _PICKLE[1])
_HDF5 = ("HDF5, which is not read", _PICKLE[1])
# The first bytes of kinds of files, with the name of the kind and what to do.
_KINDS: tuple[tuple[bytes, str, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer", "fetch the file itself with `git lfs pull`"),
    (b"\x93NUMPY", "NPY", "name it .npy"),
    (b"PAR1", "Parquet", "name it .parquet"),
    (b"ARROW1", "Arrow", "name it .arrow"),
    (b"PARE", "encrypted Parquet", DECRYPT),
    (
        b"FEA1",
        "Feather version 1",
        "convert it: import pandas; pandas.read_feather(path).to_parquet('x.parquet')",
    ),
    (b"\x89HDF", *_HDF5),
    (b"PK\x03\x04", "NPZ", "name it .npz"),
    (b"\x1f\x8b", "gzip", "decompress it with gunzip"),
    *(
        (page, "a page in place of a download", "fetch the file itself")
        for page in (b"<!", b"<htm", b"<?xml")
    ),
    *((b"\x80" + bytes([version]), *_PICKLE) for version in range(2, 6)),
)
_JSON = (
    "JSON lines",
    "convert vectors: import pyarrow.json as j, pyarrow.parquet as q; "
    "q.write_table(j.read_json({path!r}), 'x.parquet'); embed texts with `batchplan embed`, or "
    "plan them with `batchplan plan --model`",
)
_JSON_LISTS = (
    "convert vectors: import json, numpy as n; "
    "n.save('x.npy', n.array([json.loads(line) for line in open({path!r})], 'f4'))"
)
_CSV = (
    "CSV",
    "convert one column per dimension: import numpy as n; "
    "n.save('x.npy', n.loadtxt({path!r}, 'f4', delimiter=',')); give loadtxt skiprows=1 if there "
    "is a header, and usecols to leave out ids",
)
_CSV_OF_LISTS = (
    "convert a column of lists, here 'x': import json, numpy as n, pyarrow.csv as c; "
    "n.save('x.npy', n.array([json.loads(str(v)) for v in c.read_csv({path!r})['x']], 'f4'))"
)
_BARE = (
    "numbers without a header, if it is no other kind by this name",
    "convert them, here of 384 dimensions: import numpy as n; "
    "n.save('x.npy', n.fromfile({path!r}, 'f4').reshape(-1, 384))",
)
WIDE = (
    "convert them: import numpy as n, pyarrow.dataset as d; n.save('x.npy', n.column_stack([c for "
    "c in d.dataset({path!r}, format={kind!r}).to_table() if c.type in ('float', 'double')])"
    ".astype('f4'))"
)
# Other suffixes, with what such files are and what to do.
_SUFFIXES = {
    ".jsonl": _JSON, ".ndjson": _JSON, ".csv": _CSV, ".bin": _BARE,
    **dict.fromkeys((".pkl", ".pickle"), _PICKLE), **dict.fromkeys((".pt", ".pth"), _TORCH),
    ".h5": _HDF5, ".hdf5": _HDF5,
}  # fmt: skip


def begins_as_data(path: ShardPath) -> bool:
    """Return whether a file of this machine begins as NPY, Parquet and Arrow files do, whatever its
    name is. Files at URLs are not asked, as each costs a request."""
    if not isinstance(path, Path):
        return False
    with suppress(OSError, InputError), open_regular(path, "data") as stream:
        return stream.read(6).startswith((b"\x93NUMPY", b"PAR1", b"ARROW1"))
    return False


def other_kind(path: ShardPath, expected: str) -> InputError | None:
    """Return the error that says which other kind of file this is by its first bytes; None if they
    do not say."""
    start = _start(path)
    for magic, kind, mend in _KINDS:
        if start.startswith(magic) and kind != expected:
            kind, mend = _TORCH if b"data.pkl" in start else (kind, mend)
            return InputError(f"{path}: got {kind}, expected {expected}; {mend}")
    return None


def unknown_suffix(path: ShardPath, expected: str) -> InputError:
    """Return the error for a file with a suffix that is not read."""
    suffix = path.suffix.lower()
    kind, mend = _SUFFIXES.get(suffix, ("", ""))
    if suffix == ".csv" and b"[" in _start(path):
        mend = _CSV_OF_LISTS
    elif suffix in (".jsonl", ".ndjson") and _start(path).startswith(b"["):
        mend = _JSON_LISTS
    if (not kind or suffix == ".bin") and (error := other_kind(path, expected)) is not None:
        return error
    got = f"{path.suffix or '(none)'}{f' ({kind})' if kind else ''}"
    mend = f"; {mend.format(path=str(path))}" if mend else ""
    return InputError(f"{path}: got suffix {got}, expected {expected}{mend}")


def _start(path: ShardPath) -> bytes:
    with suppress(BatchplanError, OSError), opened_file(path, "a file") as file:
        return file.read(1 << 10)
    return b""
