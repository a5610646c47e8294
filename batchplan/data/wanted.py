"""Which columns the user asked for."""

from dataclasses import dataclass

from batchplan.errors import InputError


@dataclass(frozen=True)
class Wanted:
    """The column names the user gave, None where none was; an empty ``id`` asks for no ids."""

    x: str | None = None
    y: str | None = None
    id: str | None = None

    def refuse(self, where: str) -> None:
        """Refuse names of columns where there are none.

        Raises:
            InputError: ``where`` begins the message.
        """
        if named := [f"{name}_column" for name, value in vars(self).items() if value]:
            raise InputError(
                f"{where}: got {' and '.join(named)}, but arrays have no columns; leave it out"
            )
