"""Folders of tables with versions, whose files also have overwritten and deleted rows."""

from batchplan.errors import InputError
from batchplan.files.remote import ShardPath

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
