"""Whether a command printed what its page shows: to the last digit, or near it."""

from __future__ import annotations

import doctest
import re

# Blocks whose figures depend on the last bits of float32 products, and so on the processor, say so:
# "console near" shows plans, and "console trained" models that were trained on such plans. There
# decimals may differ by so much (of 1, or of 100 percent), and whole numbers not at all. Measured
# between a Xeon with AMX, that Xeon under `make test-other-machine`, and rows that were changed in
# their last bits: plans by 0.0024 in losses and 0.2 percentage points in shares; models, in one
# pair of runs, by 0.0133 in losses and 0.0044 in ranks.
TOLERANCES = {"near": 0.005, "trained": 0.05}

# In a table of `compare`, the plans that are the same on every processor.
_SAME_EVERYWHERE = re.compile(r"\s*\d*\s+(gcbs|shuffled|random batches)\s")
_DECIMAL = re.compile(r"(?<![\w.,])([-+]?\d[\d,]*\.\d+)(?![\w.])")
_VARYING = [
    (re.compile(r"seconds\s+[\d.]+, of which.*"), "seconds ..."),
    (re.compile(r"peak memory\s+.*"), "peak memory ..."),
]


def require_same(shown: str, printed: str, where: str, like: str = "") -> None:
    """Blanks may differ, times and memory do, and ... stands for anything; ``like`` says which of
    `TOLERANCES` holds for decimals, if any."""
    for pattern, instead in _VARYING:
        shown, printed = pattern.sub(instead, shown), pattern.sub(instead, printed)
    same = _near(shown, printed, TOLERANCES[like]) if like else _same(shown, printed)
    assert same, f"{where}\nthe page shows:\n{shown}\nit printed:\n{printed}"


def _same(shown: str, printed: str) -> bool:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(shown, printed, flags)


def _near(shown: str, printed: str, tolerance: float) -> bool:
    pieces = _DECIMAL.split(" ".join(shown.split()))  # text, decimal, text, ..., text
    pieces[::2] = [r".*?".join(map(re.escape, text.split("..."))) for text in pieces[::2]]
    pieces[1::2] = [_DECIMAL.pattern] * (len(pieces) // 2)
    found = re.fullmatch("".join(pieces), " ".join(printed.split()))
    return found is not None and all(
        abs(_value(a) - _value(b)) <= allowed + 1e-9
        for (a, allowed), b in zip(_decimals(shown, tolerance), found.groups(), strict=True)
    )


def _decimals(shown: str, tolerance: float) -> list[tuple[str, float]]:
    """Each decimal of the page, and by how much another may differ from it."""
    found = []
    for line in shown.splitlines():
        allowed = 0.0 if _SAME_EVERYWHERE.match(line) else tolerance
        for match in _DECIMAL.finditer(line):
            percent = line[match.end() :].startswith("%")
            found.append((match[1], 100 * allowed if percent else allowed))
    return found


def _value(decimal: str) -> float:
    return float(decimal.replace(",", ""))
