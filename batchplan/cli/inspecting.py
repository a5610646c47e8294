"""The command `inspect`: describe embeddings or a plan."""

from typing import Any

from batchplan.cli.grouping import grouped
from batchplan.cli.options import BATCH_SIZE, JSON, HostSession, Inputs
from batchplan.cli.output import print_json
from batchplan.data.answer_options import AnswerOptions
from batchplan.text import one_line


@grouped
def inspect(
    embeddings: Inputs,
    session: HostSession,
    options: AnswerOptions,
    batch_size: int | None = BATCH_SIZE,
    json: bool = JSON,
) -> None:
    """Describe embeddings or a plan.

    For embeddings: shape, similarities, duplicates, and the rows that each guard would exclude. For
    a plan: how it was made, and for which data.

    \b
    Example:
      batchplan inspect embeddings.parquet
    """
    from batchplan import plans
    from batchplan.cli.console import print_facts

    alone = len(embeddings) == 1 and not session.pair
    if alone and (batch_size or plans.is_plan(embeddings[0])):
        document = plans.Plan.load(embeddings[0], batch_size=batch_size).metadata.to_dict()
    else:
        from batchplan.guard.describe import describe

        with session.opened(embeddings) as (data, runtime, _):
            described = describe(data, runtime, similarity=options.similarity, answers=options)
            document = described.to_dict()
    if json:
        return print_json(document)
    if "guards" in document:
        document["ids"] = document["ids"] or "none; --id-column names a column other than id"
        document["guards"] = [_effect(**guard) for guard in document["guards"]]
    print_facts((name.replace("_", " "), _plain(value)) for name, value in document.items())


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
    rows += " row" if rows == "1" else " rows"
    return f"{limit}: {rows} excluded per row; {100 * rows_affected:.3g}% of rows affected"


def _plain(value: Any) -> str:
    """A value as text: short numbers, one line per item of a list, mappings as name and value."""
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, dict):
        return "  ".join(f"{one_line(k)}: {_plain(v)}" for k, v in value.items()) or "none"
    if isinstance(value, list | tuple):
        return "\n".join(_plain(inner) for inner in value) or "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return one_line(str(value))
