"""The command `inspect`: show what embeddings, or a plan, hold."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from batchplan.cli.grouping import grouped
from batchplan.cli.options import BatchSize, Inputs, Json, Reading, Running, Speaking, print_json
from batchplan.text import one_line


@grouped
def inspect(
    embeddings: Inputs,
    reading: Reading,
    running: Running,
    speaking: Speaking,
    similarity: Annotated[
        Literal["cosine", "dot"],
        typer.Option(help="cosine normalises the rows, dot takes them as they are."),
    ] = "cosine",
    batch_size: BatchSize = None,
    json: Json = False,
) -> None:
    """Show what embeddings, or a plan, hold.

    Of embeddings: shards, shape, lengths of rows, and how similar positives and random negatives
    are. Of a plan file: how it was made, and for which data.

    \b
    Example:
      batchplan inspect embeddings.parquet
    """
    from batchplan.cli.console import facts, print_out
    from batchplan.plans import Plan, is_plan

    if len(embeddings) == 1 and not reading.pair and (batch_size or is_plan(embeddings[0])):
        plan = Plan.load(embeddings[0], batch_size=batch_size)
        document: dict[str, Any] = plan.metadata.to_dict()
    else:
        from batchplan.quality.describe import describe

        watch = speaking.watch()
        runtime = running.runtime(watch)
        with watch.watching():
            data = reading.load(embeddings, runtime)
            document = describe(data, runtime, similarity=similarity).to_dict()
    if json:
        print_json(document)
    else:
        if "guards" in document:
            document["guards"] = [_effect(**guard) for guard in document["guards"]]
        print_out(facts((name.replace("_", " "), _plain(v)) for name, v in document.items()))


def _effect(
    relative_margin: float | None,
    absolute_margin: float | None,
    max_score: float | None,
    kept_away: float,
    rows_affected: float,
) -> str:
    if relative_margin is not None:
        limit = f"{1 - relative_margin:.2f} x positive"
    elif absolute_margin is not None:
        limit = f"positive - {absolute_margin:.2f}"
    else:
        limit = f"score {max_score:g}"
    rows = f"{kept_away:,.0f}" if kept_away >= 10 else f"{kept_away:.2g}"
    return f"{limit}: {rows} rows excluded per row; {100 * rows_affected:.3g}% of rows affected"


def _plain(value: Any) -> str:
    """A value for people: numbers short, lists a line each, mappings as name and value."""
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, dict):
        return "  ".join(f"{one_line(k)}: {_plain(v)}" for k, v in value.items()) or "none"
    if isinstance(value, list | tuple):
        return "\n".join(_plain(inner) for inner in value) or "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return one_line(str(value))
