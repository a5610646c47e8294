"""The columns that the user named."""

from dataclasses import dataclass

from batchplan.errors import InputError


@dataclass(frozen=True)
class Wanted:
    """The names of columns, None if not named; an empty ``id`` reads no ids."""

    x: str | None = None
    y: str | None = None
    id: str | None = None

    def refuse(self, where: str) -> None:
        """Refuse column names for files without columns.

        Raises:
            InputError: ``where`` begins the message.
        """
        if named := [f"{name}_column" for name, value in vars(self).items() if value]:
            raise InputError(
                f"{where}: got {' and '.join(named)}, but arrays have no columns; leave them out"
            )
