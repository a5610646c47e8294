"""Mines hard negatives of each row. One per row is the baseline Hard Negative (1) of GCBS.

Sachidananda, Yang and Zhu, "Global Selection of Contrastive Batches via Optimization on Sample
Permutations", ICML 2023, section 7 and appendix C: each row gets the hardest row of the other side,
and an epoch takes twice as many batches. With a limit, mining is positive-aware (NV-Retriever:
Moreira et al. 2024, arXiv 2407.15831).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from batchplan import data, graph, guard
from batchplan.errors import InputError
from batchplan.guard.options import OptionalGuardOptions
from batchplan.options import check_one_limit, option
from batchplan.planners.common.draft import Draft, Mined
from batchplan.planners.common.options import TableOptions
from batchplan.runtime import WARNING, Runtime

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class HardnegOptions(OptionalGuardOptions, TableOptions):
    """Options of `hardneg`.

    Raises:
        InputError: as its bases; fewer than one negative per row.
    """

    per_row: int = option(1, "Negatives per row, the hardest first.", ge=1)
    corpus: list[str] | None = option(
        None,
        "Files of further documents to mine, numbered after the rows. Repeatable.",
        kind="path",
    )
    as_candidates: bool = option(False, "Write lists for --candidates instead of a table.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.as_candidates and self.as_batches:
            raise InputError("as candidates: given with --as-batches; leave out one of the two")
        if self.guard_penalty is not None:
            raise InputError(
                f"guard penalty: got {self.guard_penalty}, but no negative breaks the guard here; "
                "leave it out"
            )


def hardneg(
    embeddings: data.Embeddings, options: HardnegOptions, runtime: Runtime
) -> Draft | Mined | data.Candidates:
    """Mine the negatives of each row i: the rows j != i with the largest x_i . y_j among those that
    the guard allows.

    Args:
        embeddings: N pairs of d dimensions; O(N^2 d) work.
        options: how many negatives, a table or batches, and the guard.
        runtime: device, memory budget, seed of the order of the anchors in batches, progress.

    Returns:
        A table; rows with fewer than M negatives are left out, and their number is reported to the
        observer. With ``as_batches``, a plan of about N (1 + M) / B batches of B // (1 + M) anchors
        and their M negatives; if the batch has a negative already, its anchor gets the next
        hardest. With ``as_candidates``, lists of up to M rows with their similarities.

    Raises:
        InputError: options that do not fit the data, a zero row under cosine, or too few possible
            negatives: for every row, or, in a plan, for any row.
        ResourceError: not enough memory, or no such device.
    """
    import numpy as np  # --help loads this file

    from batchplan.planners.common.anchors import anchor_batches, check_batch, require_enough

    n, wanted = embeddings.num_rows, options.per_row
    if options.corpus and (
        options.as_candidates or options.as_batches or not check_one_limit(options)
    ):
        raise InputError(
            "corpus: expected a table of negatives, whose documents need not be rows, and a limit "
            "such as --relative-margin, as the corpus may hold right answers"
        )
    if options.as_batches:
        check_batch(options.rows_per_batch, wanted)
    keep_apart = guard.guard_of(embeddings, options, runtime, strict=True)
    # When a negative is chosen, the batch has less than B rows, so one of B - 1 neighbours is free.
    count = min(options.rows_per_batch - 1 if options.as_batches else wanted, n - 1)
    lists = graph.nearest_neighbors(
        embeddings, count, runtime, similarity=options.similarity, guard=keep_apart
    )
    if options.as_candidates:
        return _candidates(embeddings, lists, options.similarity)
    nearest = lists.indices
    facts: dict[str, Any] = {}
    if options.corpus:
        nearest, facts = _with_corpus(embeddings, lists, keep_apart, options, runtime)
    found = (nearest[:, :wanted] >= 0).sum(axis=1)
    enough = np.flatnonzero(found >= wanted)
    if options.as_batches or not len(enough):
        require_enough(found, wanted)
    if options.as_batches:
        apart = keep_apart.apart
        return anchor_batches(nearest, wanted, embeddings, options, runtime, apart)
    if len(enough) == n:
        return Mined(nearest, facts=facts)
    runtime.note(
        WARNING,
        f"{n - len(enough):,} of {n:,} rows are left out of the table: the guard allows fewer than "
        f"{wanted} negatives for each",
    )
    return Mined(nearest[enough], anchors=enough, facts=facts)


def _with_corpus(
    embeddings: data.Embeddings,
    lists: graph.Neighbors,
    keep_apart: guard.Guard,
    options: HardnegOptions,
    runtime: Runtime,
) -> tuple[NDArray[np.int64], dict[str, Any]]:
    """The nearest negatives from the rows and from the corpus, whose document c has number N + c;
    and facts about the corpus."""
    import numpy as np

    from batchplan.graph.corpus import nearest_in_corpus
    from batchplan.graph.documents import united_lists

    assert keep_apart.ceilings is not None  # the options have a limit
    corpus = data.load_embeddings(
        options.corpus,
        negatives="none",
        single=True,
        cast=True,
        memory=runtime.memory,
        observer=runtime.observer,
    )
    if corpus.dim != embeddings.dim:
        raise InputError(
            f"corpus: got {corpus.dim} dimensions, expected {embeddings.dim} as the rows have; "
            "embed both with one model"
        )
    corpus.require_similarities(options.similarity)
    k, n = options.per_row, embeddings.num_rows
    others, scores = nearest_in_corpus(
        embeddings, corpus.x, k, runtime, similarity=options.similarity,
        ceilings=keep_apart.ceilings,
    )  # fmt: skip
    missing = ((0, 0), (0, k - lists.indices.shape[1]))
    own = (
        np.pad(lists.indices, missing, constant_values=-1),
        np.pad(lists.similarities, missing, constant_values=-np.inf),
    )
    more = np.where(others >= 0, n + others, -1), scores
    nearest = united_lists([own, more], n + len(corpus.x))[0]
    return nearest, {"corpus_rows": len(corpus.x), "corpus_fingerprint": corpus.fingerprint}


def _candidates(
    embeddings: data.Embeddings, lists: graph.Neighbors, similarity: str
) -> data.Candidates:
    """Return the lists as `Candidates`, with the similarity of each row's own pair."""
    import numpy as np

    from batchplan.guard.guard import positives
    from batchplan.planners.common.anchors import require_enough

    there = lists.indices >= 0
    lengths = there.sum(axis=1)
    require_enough(lengths, 1)
    return data.Candidates.of_arrays(
        np.append(0, np.cumsum(lengths)), lists.indices[there], lists.similarities[there],
        positives(embeddings, similarity),
    )  # fmt: skip
