"""A stage, and its figures, which are saved one at a time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Record:
    """Adds the figures of a stage to a file, a line of JSON each, and prints them.

    Attributes:
        path: the file.
        stage: its name.
    """

    path: Path
    stage: str

    def put(self, figure: str, value: float | str) -> None:
        """Save a figure, and print it."""
        with self.path.open("a") as file:
            file.write(json.dumps({"stage": self.stage, "figure": figure, "value": value}) + "\n")
        text = value if isinstance(value, str) else f"{value:.4g}"
        print(f"{self.stage:<16}{figure:<60} {text}", flush=True)


def run(record: Record, device: str, scale: float, texts: Path, data: Path | None) -> None:
    """Run the stage of a record, in a process of its own; save the error that ends it."""
    from tests.benchmarks.gpu.stages import FUNCTIONS, Bench  # not in the process that waits

    try:
        FUNCTIONS[record.stage](Bench(record, device, scale, texts, data))
    except BaseException as error:
        record.put("error", f"{type(error).__name__}: {error}")
        raise
