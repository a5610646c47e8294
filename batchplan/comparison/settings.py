"""Settings to compare: planners with options, from names and tables of a TOML file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from batchplan.errors import InputError, OptionError
from batchplan.files.documents import parse_toml
from batchplan.files.reading import read_regular
from batchplan.files.remote import no_url
from batchplan.options import check_names, paths_of, shown
from batchplan.planners import PLANNERS
from batchplan.planners.common.options import PlannerOptions
from batchplan.plans.output import check_files
from batchplan.text import check_urls

USUAL = ("shuffled", "gcbs", "rwr", "scb", "partition")

# Names appear in comma-separated lists, as TOML tables and in file names.
_NAME = re.compile(r"\w[\w .+=-]{0,99}")

_MOST_BYTES = 1 << 20  # settings have a few kilobytes


@dataclass(frozen=True)
class Setting:
    """A planner and its options.

    Attributes:
        name: unique among the settings of a comparison.
        planner: a name in `PLANNERS`.
        options: all options of the planner.
    """

    name: str
    planner: str
    options: PlannerOptions

    def to_dict(self) -> dict[str, Any]:
        """The setting as JSON values."""
        return {"name": self.name, "planner": self.planner, "options": shown(self.options)}


def read_settings(
    names: Sequence[str] | None, file: str | None, shared: Mapping[str, Any]
) -> list[Setting]:
    """Return the settings with these names, in this order, each once.

    Args:
        names: tables of the file, or planners with their defaults; None for all tables of the file,
            or `USUAL` if there are none.
        file: a TOML file with a table for each setting, with options by field. The name of the
            table, or its key ``planner``, is the planner.
        shared: options for every planner that has them, unless its table sets its own.

    Raises:
        InputError: the file is missing or not TOML, an unknown planner or option, an invalid
            value, or a planner that would make a table of negatives.
    """
    tables = {} if file is None else _read_tables(file)
    known = {name: make_setting(name, table, shared, f"{file}: ") for name, table in tables.items()}
    chosen = list(known) or USUAL if names is None else names
    for name in chosen:
        if name not in known and name not in PLANNERS:
            expected = ", ".join(dict.fromkeys([*known, *PLANNERS]))
            raise OptionError(f"planners: got {name!r}, expected some of {expected}")
    return [
        known[name] if name in known else make_setting(name, {}, shared)
        for name in dict.fromkeys(chosen)
    ]


def _read_tables(file: str) -> dict[str, dict[str, Any]]:
    content = read_regular(no_url(file), _MOST_BYTES, "a TOML file of settings")
    try:
        tables = parse_toml(content)
    except ValueError as error:
        raise InputError(f"{file}: is not a TOML file: {error}") from error
    if not tables:
        raise InputError(f"{file}: has no table, expected one per setting, such as [partition]")
    return tables


def make_setting(
    name: str, table: Mapping[str, Any], shared: Mapping[str, Any] | None = None, where: str = ""
) -> Setting:
    """Make the setting that a mapping describes.

    Args:
        name: of the setting, and of the planner unless the table has ``planner``.
        table: options by field, with ``-`` or ``_``, and ``planner``.
        shared: options for every planner that has them, unless the table sets its own.
        where: the beginning of error messages.

    Raises:
        InputError: a name that no file can have, an unknown planner or option, an invalid value,
            or a planner that would make a table of negatives.
    """
    check_urls([name, table])
    if not isinstance(table, Mapping) or not _NAME.fullmatch(name):
        raise InputError(
            f"{where}{name!r:.120}: expected a table, such as [partition], with a name of at most "
            "100 letters, digits, spaces and any of . + = - _, that begins with a letter or digit"
        )
    where = f"{where}[{name}]: "
    planner = table.get("planner", name)
    if not isinstance(planner, str) or planner not in PLANNERS:
        raise InputError(
            f"{where}planner: got {planner!r}, expected one of {', '.join(PLANNERS)}, as the "
            "name of the table or as planner = ..."
        )
    kind = PLANNERS[planner].options
    known = {field.name for field in fields(kind)}
    values = {option: value for option, value in (shared or {}).items() if option in known}
    own = {key.replace("-", "_"): value for key, value in table.items() if key != "planner"}
    values |= own
    if "as_batches" in known and values.setdefault("as_batches", True) is False:
        raise InputError(
            f"{where}as_batches: got False, expected True: a table of negatives has no batches "
            "to compare"
        )
    try:
        check_names(own, kind, planner)
        return Setting(name, planner, kind(**values))
    except OptionError as error:
        raise (InputError if table else OptionError)(f"{where}{error}") from error


def plan_path(folder: Path, setting: Setting) -> Path:
    """The file of the plan of a setting in a folder."""
    return folder / f"{setting.name}.npz"


def check_folder(
    folder: Path, settings: Sequence[Setting], inputs: Sequence[str], *, force: bool
) -> None:
    """Refuse a folder to which the plans of these settings cannot or must not be written.

    Args:
        folder: it may not exist yet.
        settings: the planners and their options.
        inputs: files, folders and globs that are read, in addition to those that the settings name.
        force: whether existing plans may be replaced.

    Raises:
        InputError: it cannot be a folder, it is in an input, a plan would overwrite an input, or a
            plan exists, without ``force``.
    """
    inputs = [*inputs, *paths_of(*(setting.options for setting in settings))]
    check_files(folder, [plan_path(folder, one).name for one in settings], force, inputs)
