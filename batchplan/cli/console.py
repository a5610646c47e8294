"""Progress bars and summaries on standard error, tables on standard output."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from batchplan.cli.mapped import told_of_cuts
from batchplan.runtime import PASSED_OVER
from batchplan.text import clean, one_line

if TYPE_CHECKING:
    from rich.progress import TaskID


class _Console(Console):
    """A console that shows nothing but printable text, whatever was composed of what files hold,
    and leaves it to `batchplan.cli.failures` what a broken pipe means."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=clean(segment.text))

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


_ALWAYS_NOTED = ("cost",)  # what a long run is about to take should be known before it starts


class _Rate(ProgressColumn):
    """Steps a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "", style="progress.data.speed")


class Watch:
    """Draws stages as progress bars on a terminal, and remembers how long they took."""

    def __init__(self, *, quiet: bool, verbose: bool) -> None:
        self.seconds: dict[str, float] = {}
        self.quiet = quiet
        self.console = _Console(stderr=True, highlight=False)
        self._verbose = verbose
        self._began = time.perf_counter()
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
    def watching(self) -> Iterator[Watch]:
        """Show progress while the body runs; a mapped file that is cut short ends the process."""
        with told_of_cuts(), self._progress:
            yield self

    def start(self, stage: str, total: int | None) -> None:
        self._tasks[stage] = self._progress.add_task(stage, total=total)

    def advance(self, stage: str, steps: int) -> None:
        self._progress.advance(self._tasks[stage], steps)

    def finish(self, stage: str, seconds: float) -> None:
        self._progress.remove_task(self._tasks[stage])
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def note(self, name: str, value: object) -> None:
        usual = name in _ALWAYS_NOTED and not self.quiet
        if usual or self._verbose or name == PASSED_OVER:  # which is a warning
            self.console.print(Text(one_line(f"{name}: {value}")), soft_wrap=True)

    def total_seconds(self) -> float:
        """Wall time since the watch began."""
        return time.perf_counter() - self._began


def facts(rows: Iterable[tuple[str, str]]) -> Text:
    """Names and values in two columns; a value may have several lines.

    No table: rich would fold long values, such as paths, and read [brackets] in them as markup.
    """
    rows = [(one_line(name), value) for name, value in rows]
    width = max(len(name) for name, _ in rows) + 2
    lines = [
        Text.assemble((f"{'' if number else name:{width}}", "bold"), one_line(line))
        for name, value in rows
        for number, line in enumerate(value.split("\n"))
    ]
    return Text("\n").join(lines)


def print_out(shown: Table | Text) -> None:
    """A table or text on standard output; what its encoding lacks is spelled out."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    _Console(highlight=False).print(shown, soft_wrap=isinstance(shown, Text))
