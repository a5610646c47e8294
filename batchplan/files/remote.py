"""Files behind URLs, which the file systems of pyarrow open.

A `RemotePath` has the methods of `pathlib.Path` that readers of shards use, so they read both.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from batchplan.errors import BatchplanError, InputError
from batchplan.files.reading import changed_error, open_regular, readable
from batchplan.text import check_urls

_URL = re.compile(r"[A-Za-z0-9+.-]{2,}:/")
_RANGE = 8 << 20  # bytes of a request; object stores are slow to begin, and fast once they do
_AT_ONCE = 8  # requests in flight
_PATIENCE = "retry_limit_seconds"  # of Google's object store
_EXPECTED = (
    "expected s3://, gs://, hdfs:// or another scheme of pyarrow's file systems, with special "
    "characters of a path escaped (a space is %20)"
)


@dataclass(frozen=True)
class RemotePath:
    """A file or a folder, as it was when it was looked up.

    Attributes:
        url: what the user gave, which says how to reach the file system; ``str()`` has no more than
            the scheme and the path.
        path: within the file system, such as ``bucket/shards/0.npy``.
        kind: ``File``, ``Directory``, or another name of pyarrow.fs.FileType.
        size, written: in bytes and ns; 0 if unknown.
    """

    url: str
    path: str
    kind: str = "NotFound"
    size: int = 0
    written: int = 0

    def __str__(self) -> str:
        return f"{self.url.partition(':')[0]}://{self.path}"

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self.url, f"{self.path}/{name}").now()

    @property
    def name(self) -> str:
        return self._pure.name

    @property
    def suffix(self) -> str:
        return self._pure.suffix

    @property
    def parts(self) -> tuple[str, ...]:
        return self._pure.parts

    @property
    def parent(self) -> RemotePath:
        return RemotePath(self.url, str(self._pure.parent))

    @property
    def parents(self) -> list[RemotePath]:
        """The folders above, the nearest first, without the root; they are not looked up."""
        return [RemotePath(self.url, str(folder)) for folder in list(self._pure.parents)[:-1]]

    def exists(self) -> bool:
        return self.kind != "NotFound"

    def is_file(self) -> bool:
        return self.kind == "File"

    def is_dir(self) -> bool:
        return self.kind == "Directory"

    def resolve(self) -> RemotePath:
        return self

    def iterdir(self) -> Iterator[RemotePath]:
        """Return the entries of a folder, in no order, from a single listing."""
        from pyarrow.fs import FileSelector

        with _reported(self):
            infos = _file_system(self.url)[0].get_file_info(FileSelector(self.path))
        return map(self._found, infos)

    def matches(self) -> list[RemotePath]:
        """Return the files with names that match the last part of this path, a glob."""
        if glob.has_magic(str(self._pure.parent)):
            raise InputError(f"{self}: got a glob of folders, expected one of files alone")
        return [path for path in self.parent.iterdir() if fnmatchcase(path.name, self.name)]

    def now(self) -> RemotePath:
        """Return the same path, looked up again."""
        with _reported(self):
            return self._found(_file_system(self.url)[0].get_file_info(self.path))

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Open the file to read it by any ranges, as a pyarrow.NativeFile.

        Raises:
            InputError: it cannot be opened; or it changed between its look-up and the end of the
                body, which may have read old and new bytes.
        """
        with _reported(self):
            file = _file_system(self.url)[0].open_input_file(self.path)
        with file:
            if file.size() != self.size:  # known without another request
                raise changed_error(self, f"{file.size()} bytes, before {self.size}")
            yield file
        now = self.now()
        if (now.size, now.written) != (self.size, self.written):
            got = f"{now.size} bytes written at {now.written} ns" if now.is_file() else "none"
            before = f"{self.size} bytes written at {self.written} ns"
            raise changed_error(self, f"{got}, before {before}")

    def read_into(
        self, out: memoryview, start: int, unit: int, advance: Callable[[int], None]
    ) -> None:
        """Fill ``out`` with bytes of the file, several ranges at a time.

        Args:
            out: is filled.
            start: the place of the first byte in the file.
            unit: the length of each range but the last is a multiple of it.
            advance: called with the bytes of each range that is read.

        Raises:
            InputError: as `open`.
            OSError: a range cannot be read.
        """

        step = max(1, _RANGE // unit) * unit

        def fetch(begin: int) -> int:
            count = min(step, len(out) - begin)
            out[begin : begin + count] = file.read_at(count, start + begin)
            return count

        with self.open() as file, ThreadPoolExecutor(_AT_ONCE) as pool:
            for count in pool.map(fetch, range(0, len(out), step)):
                advance(count)

    @property
    def _pure(self) -> PurePosixPath:
        return PurePosixPath(self.path)

    def _found(self, info: Any) -> RemotePath:
        size, written = info.size or 0, info.mtime_ns or 0
        return RemotePath(self.url, info.path, info.type.name, size, written)


ShardPath = Path | RemotePath
T = TypeVar("T")


@contextmanager
def opened_file(path: ShardPath, what: str) -> Iterator[BufferedReader]:
    """Open a file for reading; arguments and errors as `open_regular`, and
    `RemotePath.open`."""
    if not isinstance(path, RemotePath):
        with open_regular(path, what) as stream:
            yield stream
        return
    with readable(str(path)), path.open() as file:
        yield BufferedReader(file)  # a request for each small read would be slow


def is_url(name: str | os.PathLike[str]) -> bool:
    """Return whether a name is a URL, even if a `Path` has merged its slashes."""
    return _URL.match(os.fspath(name)) is not None


def located(name: str | os.PathLike[str]) -> ShardPath:
    """Return the path of a name. A URL is looked up; ``file://`` gives a path of this machine.

    Raises:
        InputError: no file system of pyarrow opens the URL.
    """
    if (local := local_path(name)) is not None:
        return local
    url = os.fspath(name)
    return RemotePath(url, _file_system(url)[1]).now()


def local_path(name: str | os.PathLike[str]) -> Path | None:
    """Return the path of a local file, also for a URL ``file://``; None for other URLs."""
    text = os.fspath(name)
    if "://" not in text or not is_url(text):
        return no_url(text)
    check_urls(text)
    return Path(_file_system(text)[1]) if text.lower().startswith("file:") else None


def no_url(name: str | os.PathLike[str]) -> Path:
    """Return the path of a name that must be a local file.

    Raises:
        InputError: it is a URL, and not a name in a folder that exists.
    """
    check_urls(name)
    path = Path(name)
    if (is_url(name) or "://" in os.fspath(name)) and not os.path.isdir(path.parent):
        raise InputError(
            f"{os.fspath(name)}: is a URL, expected a path; only embeddings, "
            "labels and texts are read from URLs, given as text and not as Path; copy other files"
        )
    return path


def of_each(function: Callable[[ShardPath], T], paths: Sequence[ShardPath]) -> list[T]:
    """Call a function that opens a file for each path; return the results in order. Remote files
    are opened several at a time, since each takes some round trips."""
    if not any(isinstance(path, RemotePath) for path in paths):
        return list(map(function, paths))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(function, paths))


@lru_cache(maxsize=64)
def _file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it."""
    from pyarrow.fs import FileSystem

    limited = url
    if url.lower().startswith(("gs:", "gcs:")) and _PATIENCE not in url:
        limited += f"{'&' if '?' in url else '?'}{_PATIENCE}=30"  # else 15 minutes
    with _reported(url):
        system, path = FileSystem.from_uri(limited)
    return system, path.rstrip("/") or path


@contextmanager
def _reported(where: RemotePath | str) -> Iterator[None]:
    """Turn what pyarrow raises into an InputError."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{where}: no such file or folder; check the URL") from None
    except (BatchplanError, MemoryError):
        raise
    except Exception as error:  # pyarrow passes some schemes on to other libraries
        mend = _EXPECTED
        if isinstance(where, RemotePath):
            mend = "check the URL, the network and your credentials (docs/formats.md)"
        reason = f"{str(error).partition(chr(10))[0]:.300}".rstrip(". ") or type(error).__name__
        raise InputError(f"{where}: cannot be opened ({reason}); {mend}") from None
