"""Progress bars and summaries on standard error, tables on standard output."""

from __future__ import annotations

import io
import logging
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import zip_longest
from textwrap import wrap

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.text import Text

from batchplan.cli.process import cuts_reported, started
from batchplan.runtime import CHOICE, COMMAND, PLANNED, SCRATCH, SKIPPED, WARNING
from batchplan.text import clean, one_line

_COMPILING = (
    "compiling kernels, once for an installation, which takes seconds; batchplan warmup "
    "compiles all"
)
# What the user should know before a long run: what it does and takes.
_ALWAYS_NOTED = ("cost", CHOICE, COMMAND, SCRATCH)


class _Console(Console):
    """A console that prints only printable text, even if it comes from files, and leaves broken
    pipes to `batchplan.cli.statuses`."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=clean(segment.text))

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class _Rate(ProgressColumn):
    """Steps a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "", style="progress.data.speed")


class _Listener(logging.Handler):
    """Tells a watch of the kernels that are compiled."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def emit(self, record: logging.LogRecord) -> None:
        self._watch.compiling(record.getMessage())


class Watch:
    """Draws stages as progress bars on a terminal, and records how long they took.

    Attributes:
        seconds: of the stages that ended.
        compiled: kernels that were compiled while it watched.
        notes: the facts that it was told, the last of each name.
    """

    def __init__(self, *, quiet: bool, verbose: bool) -> None:
        self.seconds: dict[str, float] = {}
        self.compiled = 0
        self.notes: dict[str, object] = {}
        self._quiet = quiet
        self.console = _Console(stderr=True, highlight=False)
        self._verbose = verbose
        self._began = started()
        self._tasks: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description:>10}"),
            BarColumn(),
            MofNCompleteColumn(),
            _Rate(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=quiet or not self.console.is_terminal,
        )

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Show progress while the body runs; a mapped file that is cut short ends the process."""
        # Before 14.3, rich prints an empty line at the end of a disabled progress bar.
        shown = nullcontext() if self._progress.disable else self._progress
        kernels, listener = logging.getLogger("batchplan.kernels"), _Listener(self)
        level = kernels.level
        kernels.addHandler(listener)
        kernels.setLevel(logging.INFO)
        try:
            with cuts_reported(), shown:
                yield
        finally:
            kernels.removeHandler(listener)
            kernels.setLevel(level)

    def compiling(self, what: str) -> None:
        """A kernel is about to be compiled; the first is told of, for it and more take seconds."""
        self.compiled += 1
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
        self.notes[name] = value
        in_a_log = name == PLANNED and not self.console.is_terminal  # which shows no bars
        usual = (name in _ALWAYS_NOTED or in_a_log) and not self._quiet
        if usual or self._verbose or name in (SKIPPED, WARNING):
            self.console.print(Text(one_line(f"{name}: {value}")), soft_wrap=True)

    def spent(self) -> dict[str, float]:
        """Seconds of wall time since the process started: those of the stages, and first, as
        ``start-up``, those outside of all stages, which libraries take to load."""
        outside = time.perf_counter() - self._began - sum(self.seconds.values())
        return {"start-up": max(outside, 0.0), **self.seconds}

    def timing(self) -> tuple[str, str]:
        """The seconds of all stages, as a fact."""
        spent = self.spent()
        stages = "  ".join(f"{stage} {taken:.2f}" for stage, taken in spent.items())
        return "seconds", f"{stages}  total {sum(spent.values()):.2f}"

    def summarize(self, rows: Iterable[tuple[str, str]]) -> None:
        """Facts on standard error, unless ``quiet`` is set."""
        if not self._quiet:
            shown = facts(rows, width_of_terminal(self.console))
            self.console.print(shown, soft_wrap=True)


def columns(rows: Iterable[Sequence[str | Text]], left: Collection[int]) -> Text:
    """Rows as aligned columns, those of ``left`` to the left and others to the right; a row may end
    early.

    A rich table would truncate numbers and fold paths in a narrow terminal.
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


def facts(rows: Iterable[tuple[str, str]], width: int | None = None) -> Text:
    """Names and values in two columns; a value may have several lines, and has more where it is
    wider than a terminal of this width leaves room. Words are never cut."""
    table = list(rows)
    room = (width or 0) - 2 - max((len(one_line(name)) for name, _ in table), default=0)
    lines = [
        (Text("" if number else one_line(name), "bold"), line)
        for name, value in table
        for number, line in enumerate(
            part
            for line in value.split("\n")
            for part in ([line] if width is None else _wrapped(line, max(room, 8)))
        )
    ]
    return columns(lines, left=(0, 1))


def _wrapped(line: str, room: int) -> list[str]:
    return wrap(one_line(line), room, break_long_words=False, break_on_hyphens=False) or [""]


def width_of_terminal(console: Console | None = None) -> int | None:
    """The width of the terminal that a console, or else standard output, prints on; None for files
    and pipes, whose lines stay whole."""
    console = console or Console()
    return console.width if console.is_terminal else None


def print_out(shown: Text) -> None:
    """Text on standard output; characters that its encoding lacks are escaped."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    _Console(highlight=False).print(shown, soft_wrap=True)
