"""Progress bars and summaries on standard error, tables on standard output."""

import io
import logging
import sys
import textwrap
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import zip_longest

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.text import Text

from batchplan.cli.process import STARTED
from batchplan.pages import linked
from batchplan.runtime import CHOICE, COMMAND, EXPECTED, NOTE, PLANNED, SCRATCH, WARNING
from batchplan.text import clean, one_line

_COMPILING = (
    "compiling kernels that no earlier command needed: up to 30 seconds; batchplan warmup compiles "
    "all"
)
COMPILE = "compile"  # a stage
_NARROWEST = 24  # characters of a value, however narrow the terminal is
# The user should know these before a long run.
_ALWAYS_NOTED = "cost", CHOICE, COMMAND, EXPECTED, NOTE, SCRATCH


class _Console(Console):
    """A console that removes unprintable text.

    `batchplan.cli.statuses` handles broken pipes.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            shown = clean(segment.text)
            yield segment if segment.control else segment._replace(text=shown)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Watch:
    """Draws stages as progress bars on a terminal, and records how long they took.

    Attributes:
        seconds: the seconds of each stage that has ended.
        compiled: the number of kernels that were compiled.
    """

    def __init__(self, *, quiet: bool, verbose: bool) -> None:
        self.seconds: dict[str, float] = {}
        self.compiled = 0
        self._quiet = quiet
        self.console = _Console(stderr=True, highlight=False)
        self._verbose = verbose
        self._tasks: dict[str, TaskID] = {}
        self._kernels: TaskID | None = None  # a bar, if no stage counts them
        self._progress = Progress(
            TextColumn("{task.description:>10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=quiet or not self.console.is_terminal,
        )

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Show progress while the body runs."""
        # Before 14.3, rich prints an empty line at the end of a disabled progress bar.
        shown = nullcontext() if self._progress.disable else self._progress
        kernels, listener = logging.getLogger("batchplan.kernels"), logging.Handler()
        listener.emit = lambda record: self.compiling(record.getMessage())  # type: ignore[method-assign]
        level = kernels.level
        kernels.addHandler(listener)
        kernels.setLevel(logging.INFO)
        try:
            with shown:
                yield
        finally:
            kernels.removeHandler(listener)
            kernels.setLevel(level)

    def compiling(self, what: str) -> None:
        """Count a kernel that is about to be compiled, and report the first one.

        The count has a bar of its own, unless `warmup` has one.
        """
        self.compiled += 1
        if self._kernels is None and COMPILE not in self._tasks:
            self._kernels = self._progress.add_task(COMPILE, total=None)
        if self._kernels is not None:
            self._progress.advance(self._kernels)
        if self._verbose:
            self.console.print(Text(what), soft_wrap=True)
        elif self.compiled == 1 and not self._quiet:
            self.console.print(_COMPILING, soft_wrap=True)

    def start(self, stage: str, total: int | None) -> None:
        self._tasks[stage] = self._progress.add_task(stage, total=total)

    def advance(self, stage: str, steps: int) -> None:
        self._progress.advance(self._tasks[stage], steps)

    def finish(self, stage: str, seconds: float) -> None:
        self._progress.remove_task(self._tasks[stage])
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def note(self, name: str, value: object) -> None:
        in_a_log = name == PLANNED and not self.console.is_terminal  # a log has no progress bars
        usual = (name in _ALWAYS_NOTED or in_a_log) and not self._quiet
        if usual or self._verbose or name == WARNING:
            self.console.print(Text(one_line(linked(f"{name}: {value}"))), soft_wrap=True)

    def spent(self) -> dict[str, float]:
        """Return the seconds of wall time of ``start-up`` and of each stage.

        ``start-up`` is the time outside of all stages, mostly for loading libraries.
        """
        outside = time.perf_counter() - STARTED - sum(self.seconds.values())
        return {"start-up": max(outside, 0.0), **self.seconds}

    def timing(self) -> tuple[str, str]:
        """Return the total seconds, and the seconds of the slowest stage, or all if ``verbose``."""
        spent = self.spent()
        stages = list(spent) if self._verbose else [max(spent, key=spent.__getitem__)]
        parts = ", ".join(f"{stage} {spent[stage]:.2f}" for stage in stages)
        return "seconds", f"{sum(spent.values()):.2f}, of which {parts}"

    def summarize(self, rows: Iterable[tuple[str, str]]) -> None:
        """Print facts on standard error, unless ``quiet`` is set."""
        if not self._quiet:
            self.console.print(facts(rows, _room(self.console)), soft_wrap=True)


def columns(rows: Iterable[Sequence[str | Text]], left: Collection[int]) -> Text:
    """Align rows as columns. Rows may have fewer cells.

    A table of rich would truncate numbers and fold paths in a narrow terminal.

    Args:
        rows: the cells.
        left: the numbers of the columns to align to the left; others are aligned to the right.
    """
    table = [
        [Text(one_line(cell)) if isinstance(cell, str) else cell for cell in row] for row in rows
    ]
    cells = zip_longest(*table, fillvalue=Text())
    widths = [max(cell.cell_len for cell in column) for column in cells]
    lines = []
    for row in table:
        line = Text()
        for number, (cell, width) in enumerate(zip(row, widths, strict=False)):
            blank = " " * (width - cell.cell_len)
            padded = (cell, blank) if number in left else (blank, cell)
            line.append_text(Text.assemble("  " * (number > 0), *padded))
        line.rstrip()
        lines.append(line)
    return Text("\n").join(lines)


def facts(rows: Iterable[tuple[str, str]], room: int | None = None) -> Text:
    """Return names and values in two columns; a value may have several lines.

    Args:
        rows: the names and values.
        room: the width of the terminal, at which values are folded between words. None for any
            width.
    """
    pairs = [(one_line(name), value.split("\n")) for name, value in rows]
    longest = max((len(name) for name, _ in pairs), default=0)
    width = None if room is None else max(room - 2 - longest, _NARROWEST)
    lines: list[tuple[Text, str]] = []
    for name, value in pairs:
        folded = [piece for line in value for piece in _folded(line, width)]
        names = [Text(name, "bold"), *[Text()] * (len(folded) - 1)]
        lines += zip(names, folded, strict=True)
    return columns(lines, left=(0, 1))


def print_facts(rows: Iterable[tuple[str, str]]) -> None:
    """Print names and values on standard output, folded to the width of a terminal."""
    print_out(facts(rows, _room(_Console())))


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows as columns, or in a narrow terminal a block of lines for each row.

    Args:
        rows: the heads, then the cells of each row, whose first two name it.
    """
    table, room = columns(rows, left=(0, 1)), _room(_Console())
    if room is not None and max(line.cell_len for line in table.split("\n")) > room:
        blocks = []
        for row in rows[1:]:
            title = one_line(" ".join(filter(None, row[:2])))
            cells = [
                (f"  {head}", cell)
                for head, cell in zip(rows[0][2:], row[2:], strict=False)
                if cell
            ]
            blocks.append(Text("\n").join([Text(title, "bold"), facts(cells, room)]))
        table = Text("\n").join(blocks)
    print_out(table)


def print_out(shown: Text) -> None:
    """Print text on standard output; characters that its encoding lacks are escaped."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    _Console(highlight=False).print(shown, soft_wrap=True)


def _room(console: Console) -> int | None:
    """Return the width of a terminal; None for anything else."""
    return console.width if console.is_terminal else None


def _folded(line: str, width: int | None) -> list[str]:
    """Cut a line between words into pieces of this width. A single word may be wider."""
    if width is None:
        return [line]
    return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
