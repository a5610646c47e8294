"""The embeddings of another model, by which a guard judges which rows are too similar.

Conditional contextual batches (Morris and Rush, "Contextual Document Embeddings", 2024, arXiv
2410.02525) are chosen by one model and filtered by another, a better judge of what is relevant.
"""

from batchplan.data.embeddings import Embeddings
from batchplan.data.load import NO_NEGATIVES, load_embeddings
from batchplan.data.reference_options import ReferenceOptions
from batchplan.errors import InputError
from batchplan.runtime import Runtime


def load_reference(
    options: ReferenceOptions, embeddings: Embeddings, runtime: Runtime
) -> Embeddings | None:
    """Return the reference that the options name, for N rows of data; None if they name none.

    It may have other dimensions and another dtype.

    Raises:
        InputError: it cannot be read, or has another number of rows or sides, other ids, or rows
            without similarities.
        ResourceError: it does not fit into the memory and the disk left.
    """
    if not options.reference:
        return None
    if embeddings.negatives:
        raise InputError(
            "reference: given with mined negatives, but it has no vectors of these; leave out one "
            "of the two"
        )
    order = embeddings.origin.shard_order if embeddings.origin else None
    where = f"reference {options.reference[0]}"
    try:
        reference = load_embeddings(
            options.reference, options.reference_pair or None, negatives=NO_NEGATIVES,
            single=not embeddings.paired, memory=runtime.memory,
            observer=runtime.observer, shard_order=order,
        )  # fmt: skip
        if embeddings.paired and not reference.paired:
            raise InputError(
                "got one matrix, expected both sides of the pairs, as the data have; name the "
                "files of the other side (--pair)"
            )
        _require_rows(reference, embeddings)
        reference.require_similarities(options.similarity)
    except InputError as error:
        raise InputError(f"{where}: {error}".replace("--pair", "--reference-pair")) from error
    return reference


def stored_reference(reference: Embeddings | None) -> dict[str, str | None]:
    """Return the options of a reference as a plan stores them: its fingerprint instead of paths."""
    if reference is None:
        return {}
    return {"reference": reference.fingerprint, "reference_pair": None}


def _require_rows(reference: Embeddings, embeddings: Embeddings) -> None:
    if reference.num_rows != embeddings.num_rows:
        raise InputError(
            f"got {reference.num_rows} rows, expected {embeddings.num_rows}, as in the data, in "
            "the same order; embed the same rows"
        )
    if not any(shard.location for shard in reference.shards):
        return  # no files with columns, hence no ids
    from batchplan.data.ids import Ids, check_same
    from batchplan.data.table_files import check_types_with, files_of

    check_types_with(embeddings, files_of("x", reference))
    if reference.ids is not None and embeddings.ids is not None:
        check_same(Ids(embeddings.ids, "the data"), Ids(reference.ids, "the reference"))
