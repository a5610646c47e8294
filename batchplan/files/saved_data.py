"""What folders say about their files: folders of `datasets`, folders of `embed`, and tables
with versions, whose files also have overwritten and deleted rows."""

from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from batchplan.errors import InputError
from batchplan.files.documents import parse_json
from batchplan.files.reading import read_regular
from batchplan.files.remote import ShardPath, opened_file
from batchplan.options import ShardOrder

_INFO, _STATE, _SPLITS = "dataset_info.json", "state.json", "dataset_dict.json"
_MOST_BYTES = 16 << 20
EMBEDDED = "_embedding.json"  # what `embed` says; readers of folders skip names that begin with _
# A folder in each table, the end of names of files there if others have such a folder too, and the
# Arrow table of the current rows.
_TABLES = {
    "Delta Lake": ("_delta_log", "", "deltalake.DeltaTable(folder).to_pyarrow_table()"),
    "Hudi": (".hoodie", "", "pyarrow.Table.from_batches(hudi.HudiTable(folder).read())"),
    "Iceberg": (
        "metadata",
        ".metadata.json",
        "pyiceberg.table.StaticTable.from_metadata(newest_metadata_json).scan().to_arrow()",
    ),
    "Lance": ("_versions", ".manifest", "lance.dataset(folder).to_table()"),
}


def saved_files(folder: ShardPath) -> list[str] | None:
    """Return the names of the Arrow files of a saved data set, in order; None for other folders.

    Raises:
        InputError: there are several splits, a file of selected rows (as old versions of `datasets`
            wrote), or no files; or the folder is a cache.
    """
    if (folder / _SPLITS).exists():
        inner = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
        raise InputError(f"{folder}: holds several splits, {', '.join(inner)}; name one of them")
    state = folder / _STATE
    if not state.exists():
        if (folder / _INFO).exists() and any(path.suffix == ".arrow" for path in folder.iterdir()):
            raise InputError(
                f"{folder}: holds {_INFO} but no {_STATE}, as caches of datasets do, whose files "
                "may be of several splits; save the data set with save_to_disk, or name the files"
            )
        return None
    try:
        with opened_file(state, "the state of a data set") as stream:
            document = parse_json(stream.read(_MOST_BYTES))
        names = [file["filename"] for file in document["_data_files"]]
        selected = document.get("_indices_data_files") or document.get("_indices_files")
        if not names or not all(
            isinstance(name, str) and Path(name).name == name for name in names
        ):
            raise ValueError("it names no files of this folder")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{state}: cannot be read ({error!s:.200}); save the data set again with save_to_disk"
        ) from error
    if selected:
        raise InputError(
            f"{folder}: a file of indices selects its rows, which is not read; load it with "
            "load_from_disk of a newer datasets, and save it again with save_to_disk, which "
            "writes only the selected rows"
        )
    return list(names)


def embedded_facts(folder: Path) -> dict[str, Any]:
    """Return what `embed` says about a folder; {} if it cannot be read."""
    with suppress(ValueError):
        found = parse_json(read_regular(folder / EMBEDDED, _MOST_BYTES, "the facts of a folder"))
        return found if isinstance(found, dict) else {}
    return {}


def embedded_order(folder: ShardPath) -> ShardOrder | None:
    """Return the order of the files of texts whose embeddings a folder has; None if `embed` wrote
    none."""
    order = embedded_facts(folder).get("shard_order") if isinstance(folder, Path) else None
    return next((known for known in get_args(ShardOrder) if known == order), None)


def refuse_part(folder: ShardPath) -> None:
    """Refuse a folder of `embed` that has not all rows: it was interrupted, or copied in part.

    Raises:
        InputError: says how many of its shards there are.
    """
    if not isinstance(folder, Path):
        return
    facts = embedded_facts(folder)
    rows, each = facts.get("rows"), facts.get("shard_rows")
    if not (isinstance(rows, int) and isinstance(each, int) and each > 0):
        return
    found, wanted = len([*folder.glob("shard-*.parquet")]), -(-rows // each)
    if found < wanted:
        raise InputError(
            f"{folder}: has {found} of the {wanted} shards of its {rows} rows; run `batchplan "
            "embed` as before to go on, or copy the whole folder"
        )


def refuse_table(folder: ShardPath) -> None:
    """Refuse a folder if it is a table of Delta Lake, Hudi, Iceberg or Lance.

    Raises:
        InputError: it is one; says how to export its rows.
    """
    for name, (mark, suffix, rows) in _TABLES.items():
        inner = folder / mark
        if inner.is_dir() and (
            not suffix or any(entry.name.endswith(suffix) for entry in inner.iterdir())
        ):
            raise InputError(
                f"{folder}: is a table of {name}, whose files also have overwritten or deleted "
                f"rows; write its rows to one file, pyarrow.parquet.write_table({rows}, "
                "'rows.parquet'), and embed and plan that file"
            )
