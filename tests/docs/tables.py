"""``python -m tests.docs.tables``: writes the tables of the stored training runs into the pages,
and the files and the picture that are made of the same runs."""

from __future__ import annotations

import re

from tests.benchmarks.finetune import table as finetuned
from tests.benchmarks.law import table as law
from tests.benchmarks.law import trainings

from .blocks import ROOT

DOCS = ROOT / "docs"
_TABLE = re.compile(r"(?<=\n\n)(?:\|.*\n)+(?=\n)")


def tables(runs: list[finetuned.Run], grid: law.Grid) -> dict[str, list[str]]:
    """The tables of each page. Those with the same columns have the order of the page."""
    ours = [run for run in runs if run["domain"] in finetuned.DOMAINS]
    found = trainings.trainings(grid, runs)
    shares = finetuned.runs(finetuned.NEIGHBOURS)
    return {
        "law.md": [*law.tables(grid).values(), trainings.table(found), trainings.kinds(found),
                   trainings.base_size(runs)],
        "training.md": [trainings.largest(grid, runs),
                        *(finetuned.summary(ours, epochs) for epochs in (2, 1))],
        "training_runs.md": [
            finetuned.everything(ours, 2), finetuned.versus(ours, "planned-hardness-4"),
            finetuned.everything(ours, 1), finetuned.levers(ours, shares),
        ],
        "paper_planners.md": [finetuned.papers(runs)],
    }  # fmt: skip


def filled(page: str, own: list[str]) -> str:
    """A page with tables in the places of those that have the same columns.

    Raises:
        ValueError: it has another number of such tables.
    """
    columns = [text.partition("\n")[0] for text in own]
    places = [text.partition("\n")[0] for text in _TABLE.findall(page)]
    if sorted(columns) != sorted(head for head in places if head in columns):
        raise ValueError("a page needs one table with the columns of each new one")
    left = list(zip(columns, own, strict=True))

    def put(match: re.Match[str]) -> str:
        head = match[0].partition("\n")[0]
        place = next((place for place, (one, _) in enumerate(left) if one == head), None)
        return match[0] if place is None else left.pop(place)[1] + "\n"

    return _TABLE.sub(put, page)


def main() -> None:
    from tests.benchmarks.law.picture import draw

    runs, grid = finetuned.runs(), law.Grid()
    for name, own in tables(runs, grid).items():
        path = DOCS / name
        path.write_text(filled(path.read_text(), own))
    (DOCS / "training_runs.csv").write_text(finetuned.figures(runs))
    found = trainings.trainings(grid, runs)
    trainings.FILE.write_text(trainings.written(found))
    (DOCS / "pictures" / "law.svg").write_bytes(draw(grid))
    print("errors of what would be expected of data left out:", *trainings.errors(found))


if __name__ == "__main__":
    main()
