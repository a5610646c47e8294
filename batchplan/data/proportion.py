"""How much may be decoded at once from a file or a column."""

from batchplan.errors import InputError
from batchplan.runtime import format_bytes

_FREE, _PER_BYTE = 256 << 20, 64
_MEND = "write it in smaller record batches or row groups, without long texts that repeat"


def most_decoded(size: int) -> int:
    """Return the most bytes that may be decoded at once from ``size`` bytes."""
    return max(_FREE, _PER_BYTE * size)


def require_decodable(decoded: int, size: int, what: str, mend: str = _MEND) -> None:
    """Refuse what takes ``decoded`` bytes in memory, if that is out of proportion to its ``size``.

    Args:
        decoded: bytes in memory.
        size: bytes of the file, or of the buffers.
        what: the name of it in messages.
        mend: what to do if the file is not damaged.

    Raises:
        InputError: more than 256 MiB, and more than 64 times ``size``.
    """
    if decoded > most_decoded(size):
        raise InputError(
            f"{what}: got {format_bytes(decoded)} decoded from {format_bytes(size)}, expected at "
            f"most {format_bytes(_FREE)} or {_PER_BYTE} times as much; is it damaged? Else {mend}"
        )
