"""Pairs of three domains, made from what the machine has or Debian's packages ship.

Nothing is downloaded but packages. The texts of two machines, and so their results, are near each
other, not equal.
"""

from __future__ import annotations

import gettext
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.training.pairs import digest, functions

CACHE = Path(tempfile.gettempdir()) / "batchplan-finetune"
COLUMNS = "anchor", "positive"
TEST, VALIDATION = 3000, 1000  # pairs that are held out
LANGUAGE = "de"
CATALOGUES = (
    "apt", "binutils-common", "coreutils", "digikam-data", "dpkg", "evolution-common",
    "gcc-12-locales", "gimp-data", "git", "gnome-control-center-data", "gnucash-common",
    "gnupg-l10n", "inkscape", "kdenlive-data", "libc-l10n", "nautilus-data", "vlc-l10n",
)  # fmt: skip
LIBRARIES = (  # of Debian 12
    "ansible-core", "libpython3.11-stdlib", "mercurial-common", "python3-astropy",
    "python3-biopython", "python3-dask", "python3-distributed", "python3-django",
    "python3-docutils", "python3-gensim", "python3-jedi", "python3-matplotlib",
    "python3-mdanalysis", "python3-networkx", "python3-nltk", "python3-nova", "python3-numpy",
    "python3-pandas", "python3-scipy", "python3-seaborn", "python3-sklearn", "python3-skimage",
    "python3-sphinx", "python3-sqlalchemy", "python3-statsmodels", "python3-sunpy",
    "python3-sympy", "python3-twisted", "python3-xarray", "python3-yt",
)  # fmt: skip

Row = tuple[str, str, str]  # anchor, positive, source


@dataclass(frozen=True)
class Split:
    """The pairs of a domain: tables with the columns of `COLUMNS`. No source is in two of them."""

    train: pa.Table
    validation: pa.Table
    test: pa.Table


def load(domain: str, num_rows: int) -> Split:
    """The split of a domain, of a data set of the law, such as ``dictionary``, or of a Parquet file
    with columns anchor, positive and source, with at most `num_rows` pairs to train on."""
    from tests.benchmarks.law import data as law

    if domain in DOMAINS:
        return split(pairs(domain), num_rows)
    return split(law.pairs(domain) if domain in law.DATA else pq.read_table(domain), num_rows)


def pairs(domain: str) -> pa.Table:
    """The pairs of a domain and their sources, in a random order, kept in `CACHE`."""
    kept = CACHE / f"{domain}.parquet"
    if not kept.exists():
        rows = {digest(*row[:2]): row for row in DOMAINS[domain]()}
        # any run of rows is a random sample, the same in every run
        columns = zip(*(rows[key] for key in sorted(rows)), strict=True)
        table = pa.table(dict(zip((*COLUMNS, "source"), map(pa.array, columns), strict=True)))
        CACHE.mkdir(exist_ok=True)
        pq.write_table(table, kept)
    return pq.read_table(kept)


def split(table: pa.Table, num_rows: int) -> Split:
    """Deal whole sources to the held-out parts until these have enough pairs, the rest to training.

    Texts of held-out pairs are unique. Sources with more than a fifth of the pairs are trained on.
    """
    columns = {name: table[name].to_pylist() for name in COLUMNS}
    sources, counts = np.unique(table["source"].to_numpy(), return_counts=True)
    source = np.searchsorted(sources, table["source"].to_numpy())
    order = np.random.default_rng(0).permutation(len(sources))
    order = order[counts[order] <= len(table) / 5]
    held = []
    for size in (TEST, VALIDATION):
        taken = 1 + int(np.searchsorted(np.cumsum(counts[order]), 2 * size))
        rows = np.flatnonzero(np.isin(source, order[:taken]))
        for texts in columns.values():
            rows = rows[np.unique([texts[row] for row in rows], return_index=True)[1]]
        held.append(np.sort(rows)[:size])
        source[np.isin(source, order[:taken])] = -1  # these are used up
        order = order[taken:]
    train = np.flatnonzero(source >= 0)[:num_rows]
    test, validation, train = (table.select(COLUMNS).take(rows) for rows in (*held, train))
    return Split(train, validation, test)


def code(least: int = 4, most: int = 10, packages: Iterable[str] = LIBRARIES) -> Iterator[Row]:
    """The first line of a docstring, of ``least`` to ``most`` words, and the body of its function;
    the source is the package."""
    for package in packages:
        for path in sorted(extract(package).rglob("*.py")):
            if path.is_file() and not any("test" in part.lower() for part in path.parts):
                for docstring, code in functions(path):
                    line = docstring.strip().splitlines()[0]
                    if least <= len(line.split()) <= most:
                        yield line, code, package


def _gloss() -> Iterator[Row]:
    """A term with one sense in WordNet, and the definition of its synset, which is the source."""
    found = list(senses())
    count = Counter(term.lower() for term, _, _ in found)
    return (row for row in found
            if 3 <= len(row[1].split()) <= 14 and count[row[0].lower()] == 1)  # fmt: skip


def senses() -> Iterator[Row]:
    """A term of WordNet, and the definition of one of its synsets, which is the source."""
    for path in sorted(extract("wordnet-base").glob("usr/share/wordnet/data.*")):
        for line in path.read_text().splitlines():
            if line.startswith("  "):  # of the licence
                continue
            head, gloss = line.split(" | ", 1)
            synset, _, part_of_speech, count, *fields = head.split()
            words = fields[: 2 * int(count, 16) : 2]
            definition = gloss.split('; "')[0].strip(" ;")
            for word in words:
                term = re.sub(r"\(.*\)", "", word).replace("_", " ")
                yield term, definition, synset + part_of_speech


def _translation() -> Iterator[Row]:
    """A message in English and in German; the source is the package."""
    for package in CATALOGUES:
        for path in sorted(extract(package).rglob(f"{LANGUAGE}/LC_MESSAGES/*.mo")):
            with path.open("rb") as file:
                messages = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
            for key, translated in messages.items():
                text = key[0] if isinstance(key, tuple) else key
                english = _plain(text.split("\x04")[-1])  # without its context
                if 3 <= len(english.split()) <= 8 and re.search("[a-z]{3}", english):
                    yield english, _plain(translated), package


def _plain(text: str) -> str:
    """A message on one line, without the marks of its keyboard shortcut."""
    return re.sub(r"[_&]", "", " ".join(text.split()))


def extract(package: str) -> Path:
    """Put the files of a Debian package into a folder of the cache, which is returned; nothing is
    installed."""
    folder = CACHE / package
    if folder.exists():
        return folder
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        download = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", package]
        subprocess.run(download, cwd=name, check=True)
        (file,) = Path(name).glob("*.deb")
        part = Path(name) / "files"
        part.mkdir()
        subprocess.run(["dpkg-deb", "-x", str(file), str(part)], check=True)
        return named(part, folder)


def named(part: Path, folder: Path) -> Path:
    """Give a folder its name, unless another run gave it to the same files meanwhile."""
    try:
        return part.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
        return folder


DOMAINS: dict[str, Callable[[], Iterable[Row]]] = {
    "code": code,
    "gloss": _gloss,
    "translation": _translation,
}
