"""Vectors of texts from the token vectors of a model, without a pass of the model."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from batchplan.errors import InputError
from batchplan.typing import Float64Array, Int64Array

_RARE = 1e-3  # a token with this share of all tokens weighs half as much as a rare one
_SAMPLE = 1 << 12  # texts of a side that the mean and the component are taken from, at most
_FITTED = 1 << 15  # texts of a side that a table is fitted to, at most
_AT_ONCE, _COLUMNS = 1 << 13, 64  # texts, and dimensions of their vectors
_MAP, _OWN = 1e-1, 0.3  # ridge of the linear map, and of the tokens' own vectors
_TOKENS, _LONGEST = 64, 8  # of a text, at most; characters of each, at most
_LIST = pa.large_list(pa.int32())
_ROUNDS = 4  # of conjugate gradients


class TokenTable:
    """Vectors of texts: means of the vectors of their tokens.

    Frequent tokens weigh less: 0.001 / (0.001 + p), where p is the share of a token in all texts.
    The mean and the first principal component of the texts are removed. After Arora et al., A
    Simple but Tough-to-Beat Baseline for Sentence Embeddings, ICLR 2017.

    Args:
        tokens: the tokens of each text, lists of int32 (N,), for each of x, y and mined negatives.
        vectors: float (V, d), the vector of each token, such as the input embeddings of a model.

    Raises:
        InputError: a token has no finite vector.
    """

    def __init__(self, tokens: Sequence[pa.LargeListArray], vectors: NDArray[Any]) -> None:
        every = np.concatenate([np.asarray(side.values) for side in tokens])
        used, places, counts = np.unique(every, return_inverse=True, return_counts=True)
        self._vectors = vectors[used[used < len(vectors)]].astype(np.float64)
        known = np.append(np.isfinite(self._vectors).all(1), False)
        if (first := known.argmin()) < len(used):
            raise InputError(
                f"model: its tokenizer gives token {used[first]}, which has no finite vector among "
                f"the {len(vectors)} of its table; save the model with its own tokenizer, call "
                "resize_token_embeddings if tokens were added, or take another model"
            )
        weights = _RARE / (_RARE + counts / max(1, len(every)))
        ends = np.cumsum([len(side.values) for side in tokens])[:-1]
        self._bags = [
            _means(own, np.array(side.offsets), weights)
            for own, side in zip(np.split(places, ends), tokens, strict=True)
        ]
        step = -(-len(tokens[0]) // _SAMPLE)
        sample = np.concatenate([bag[::step] @ self._vectors for bag in self._bags])
        self._mean = sample.mean(0)
        sample -= self._mean
        self._component = np.linalg.eigh(sample.T @ sample)[1][:, -1]

    def embed(self, rows: Int64Array) -> list[NDArray[np.float16]]:
        """Return the vectors of rows, (n, d) for each side. A text without tokens gets the
        component that is removed from the others."""
        with np.errstate(over="ignore"):  # callers refuse what is not finite
            return [self._embed(bag[rows]).astype(np.float16) for bag in self._bags]

    def _embed(self, bag: csr_array) -> Float64Array:
        found: Float64Array = bag @ self._vectors - self._mean
        found -= (found @ self._component)[:, None] * self._component
        found[np.diff(bag.indptr) == 0] = self._component
        return found

    def predict(
        self, rows: Int64Array, sides: Sequence[NDArray[Any]], wanted: Int64Array
    ) -> list[NDArray[np.float16]]:
        """Return the vectors that a model would give some rows, predicted from those that it gave
        others: (m, d) for each side.

        By ridge regression on `embed`, and on the tokens themselves for what that leaves.

        Args:
            rows: int64 (n,), rows that the model has embedded.
            sides: (N, d) each, their vectors; other rows are not read.
            wanted: int64 (m,).
        """
        fitted = rows[:: -(-len(rows) // _FITTED)]
        return [
            self._predict(bag[fitted], side[fitted].astype(np.float64), bag[wanted])
            for bag, side in zip(self._bags, sides, strict=True)
        ]

    def _predict(
        self, fitted: csr_array, known: Float64Array, wanted: csr_array
    ) -> NDArray[np.float16]:
        mean, inputs = known.mean(0), self._embed(fitted)
        gram = inputs.T @ inputs
        gram += _MAP * np.trace(gram) / len(gram) * np.eye(len(gram))
        linear = np.linalg.solve(gram, inputs.T @ (known - mean))
        left = known - mean - inputs @ linear
        found = np.empty((wanted.shape[0], known.shape[1]), np.float16)
        for start in range(0, len(found), _AT_ONCE):
            rows = slice(start, start + _AT_ONCE)
            found[rows] = mean + self._embed(wanted[rows]) @ linear
        texts, others = _unit(fitted), _unit(wanted)
        for start in range(0, known.shape[1], _COLUMNS):
            columns = slice(start, start + _COLUMNS)
            found[:, columns] += others @ _own(texts, left[:, columns])
        return found


def token_table(model: Any, sides: Sequence[Iterable[Sequence[str]]]) -> TokenTable:
    """Return the token table of a model for some texts.

    Args:
        model: a SentenceTransformer or another module of torch with a ``tokenizer``, for which
            `has_table` is true; or a `batchplan.embedding.tokens.ModelTable`.
        sides: the texts of x, y and mined negatives, in parts. Of each text, the first
            ``model.max_seq_length`` tokens count, at most 64.

    Raises:
        InputError: as `TokenTable`.
    """
    most = min(getattr(model, "max_seq_length", None) or _TOKENS, _TOKENS)
    tokens = []
    with _unset(model.tokenizer) as tokenizer:
        for side in sides:
            parts = [pa.array(_tokens(tokenizer, texts, most), _LIST) for texts in side]
            tokens.append(pa.chunked_array(parts, _LIST).combine_chunks())
    return TokenTable(tokens, table_of(model))


def has_table(model: Any) -> bool:
    """Return whether a model has a tokenizer, and a vector for each of its tokens."""
    try:
        with _unset(model.tokenizer) as tokenizer:
            tokens = _tokens(tokenizer, ["token"], _TOKENS)[0]
        return bool(len(table_of(model)) > max(tokens))
    except (AttributeError, KeyError, TypeError, ValueError):  # no texts, no table, many tokenizers
        return False


def table_of(model: Any) -> NDArray[Any]:
    """Return the weights of the first embedding of a model: float32 (V, d)."""
    if (known := getattr(model, "token_vectors", None)) is not None:
        return np.asarray(known)
    from torch.nn import Embedding, EmbeddingBag

    for module in model.modules():
        if isinstance(module, Embedding | EmbeddingBag) and module.weight.ndim == 2:
            return np.asarray(module.weight.detach().float().cpu())
    raise ValueError("no table of tokens")


def description(part: Any) -> str:
    """Return what decides the tokens of a tokenizer, or what the configuration of a model says."""
    if hasattr(part, "to_json_string"):
        return str(part.to_json_string())
    inner = getattr(part, "backend_tokenizer", part)  # of transformers, whose own repr lacks words
    try:
        return f"{part!r} {inner.to_str()}"
    except Exception:  # not of the library tokenizers, or with parts that it cannot write
        words = part.get_vocab() if hasattr(part, "get_vocab") else {}
        return f"{part!r} {sorted(words.items())}"


@contextmanager
def _unset(tokenizer: Any) -> Iterator[Any]:
    """Yield a tokenizer without the padding and truncation that earlier calls have left, of the
    library tokenizers if it has one. They are put back."""
    inner = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(inner, "encode_batch"):
        yield tokenizer
        return
    padding, truncation = inner.padding, inner.truncation
    try:
        inner.no_padding()
        if inner is not tokenizer:  # else the truncation is one of the model
            inner.no_truncation()
        yield inner
    finally:
        if padding is not None:
            inner.enable_padding(**padding)
        if truncation is not None:
            inner.enable_truncation(**truncation)


def _tokens(tokenizer: Any, texts: Sequence[str], most: int) -> list[list[int]]:
    """Return the first tokens of each text."""
    texts = [text[: _LONGEST * most] for text in texts]
    if not callable(tokenizer):  # of the library tokenizers
        return [
            found.ids[:most] for found in tokenizer.encode_batch(texts, add_special_tokens=False)
        ]
    found = tokenizer(texts, add_special_tokens=False, truncation=True, max_length=most)
    return list(found["input_ids"])


def _means(places: Int64Array, offsets: NDArray[Any], weights: Float64Array) -> csr_array:
    """Return the weight of each token in the mean of each text: (N, V)."""
    bags = csr_array((weights[places], places, offsets), (len(offsets) - 1, len(weights)))
    bags.sum_duplicates()
    return _scaled(bags, bags.sum(1))


def _own(texts: csr_array, left: Float64Array) -> Float64Array:
    """Return a vector for each token, (V, d), whose sums over the texts are about what is left: the
    first conjugate gradients of ridge regression."""
    found = np.zeros((texts.shape[1], left.shape[1]))
    rest = texts.T @ left
    step, size = rest, (rest**2).sum(0)
    for _ in range(_ROUNDS):
        product = texts.T @ (texts @ step) + _OWN * step
        length = size / np.maximum((step * product).sum(0), 1e-30)
        found += length * step
        rest = rest - length * product
        before, size = size, (rest**2).sum(0)
        step = rest + size / np.maximum(before, 1e-30) * step
    return found


def _unit(bag: csr_array) -> csr_array:
    return _scaled(bag, np.sqrt((bag**2).sum(1)))


def _scaled(bag: csr_array, sizes: Float64Array) -> csr_array:
    return (diags_array(1 / np.maximum(sizes, 1e-9)) @ bag).tocsr()
