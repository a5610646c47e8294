"""The command `evaluate`: measure a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from batchplan.cli.grouping import grouped
from batchplan.cli.options import (
    BATCH_SIZE,
    JSON,
    Inputs,
    ListMeasuring,
    PlanFile,
    load_plan,
)
from batchplan.cli.output import print_json
from batchplan.errors import OptionError
from batchplan.options import option
from batchplan.text import counted, one_line

if TYPE_CHECKING:  # these load numpy
    from batchplan.quality import Evaluation, ListedEvaluation, NegativesEvaluation
    from batchplan.quality.verdict import Verdict

_SHOWN = 3  # mined negatives that are likely false; JSON has more
_MINED = "guard.mined.false"
_KNOWN = "answers.known"
_MORE = (
    "The gap is the rise in loss from random batches to one batch of all rows. --all shows all "
    "figures."
)
Facts = Iterator[tuple[str, str]]


@grouped
def evaluate(
    *,
    plan: PlanFile,
    embeddings: Inputs = None,  # type: ignore[assignment]  # with --candidates
    measuring: ListMeasuring,
    batch_size: int | None = BATCH_SIZE,
    everything: bool = option(False, "Show all metrics.", "--all"),
    json: bool = JSON,
) -> None:
    """Measure a plan, and say whether to train on it.

    Compares the loss with random batches, with all rows at once, and with an oracle that gives
    each row its hardest negatives. A table of negatives has figures of its own. docs/metrics.md
    explains every number.

    \b
    Example:
      batchplan evaluate plan.npy embeddings.parquet --temperature 0.05
    """
    from batchplan import quality
    from batchplan.cli.console import print_facts
    from batchplan.plans.negatives import Negatives, is_negatives

    def show(document: dict[str, Any], printed: Callable[[], None]) -> None:
        if json:
            print_json(document)
        elif not measuring.session.quiet:
            printed()

    listed = measuring.session.candidates is not None
    if listed and measuring.group_column:
        raise OptionError(
            "candidates: given with a column of groups, which needs vectors; leave it out"
        )
    with measuring.session.opened(embeddings or []) as (data, runtime, _):
        if is_negatives(plan):
            table = Negatives.load(plan)
            table.require_match(data.num_rows, getattr(data, "fingerprint", None))
            mined = quality.evaluate_negatives(table)
            return show(mined.to_dict(), lambda: print_facts(_table_facts(mined)))
        loaded = load_plan(plan, batch_size, data.num_rows)
        if listed:
            found = quality.evaluate_candidates(loaded, data, **vars(measuring.options))
        else:
            shown = everything or json
            options = replace(measuring.options, edges=measuring.options.edges and shown)
            facts = measuring.facts(data, runtime)
            (evaluation,) = quality.evaluate_plans([loaded], data, facts, options, runtime)
    if listed:
        return show(found.to_dict(), lambda: print_facts(_listed_facts(found)))
    judged = quality.verdict_on(evaluation)
    return show(
        {**evaluation.to_dict(), "verdict": judged.to_dict()},
        lambda: _print(evaluation, judged, loaded.metadata.planner or plan, everything),
    )


def _print(evaluation: Evaluation, judged: Verdict, name: str, everything: bool) -> None:
    """Print the verdict and its reasons; with ``everything`` all metrics below."""
    from rich.text import Text

    from batchplan.cli.console import print_facts, print_out
    from batchplan.quality.metrics import METRICS, about, basis, texts

    document = evaluation.to_dict()
    text = texts(document)
    print_out(Text(f"{one_line(name)}: {about(document)}"))
    print_facts(
        [
            ("verdict", judged.sentence),
            *(("warning", warning) for warning in judged.warnings),
            *((aspect.name, str(aspect)) for aspect in judged.aspects),
            ("guard", judged.guard),
            *_known(evaluation, text),
            *_likely_false(evaluation, text),
        ]
    )
    print_out(Text())
    if not everything:
        print_out(Text(_MORE))
        return
    print_out(Text("; ".join(filter(None, ("loss in nats", basis(document)))), "italic"))
    said = {_MINED, *(["coverage.rows_seen"] if evaluation.partitions_rows else [])}
    print_facts((METRICS[key].label, value) for key, value in text.items() if key not in said)


def _known(evaluation: Evaluation, text: dict[str, str]) -> Facts:
    """How many negatives are known answers, and of which rows most."""
    from batchplan.quality.metrics import METRICS

    if not (found := evaluation.answers) or not found.known:
        return
    yield METRICS[_KNOWN].label, text[_KNOWN]
    yield (
        "the most of them",
        "\n".join(
            f"row {one.row} meets {one.negatives}, such as row {one.other}"
            for one in found.examples[:_SHOWN]
        ),
    )


def _likely_false(evaluation: Evaluation, text: dict[str, str]) -> Facts:
    """How many mined negatives are likely false, and which most."""
    from batchplan.quality.metrics import METRICS

    if not (mined := evaluation.guard and evaluation.guard.mined):
        return
    yield METRICS[_MINED].label, text[_MINED]
    lines = [
        f"row {one.row}, negative {one.negative}: {one.similarity:.3f}, own pair {one.positive:.3f}"
        for one in mined.examples[:_SHOWN]
    ]
    if lines:
        yield "the most similar of them", "\n".join(lines)


def _table_facts(found: NegativesEvaluation) -> Facts:
    seen, drawn = found.coverage, found.drawn
    yield "negatives", f"{found.negatives_per_anchor} for each of {found.num_anchors:,} rows"
    most = f"none more than {seen.most_repeated:,} times"
    yield "rows among them", f"{seen.rows_seen:,} ({seen.share_seen:.1%}), {most}"
    draws = f"{found.uniform_draws:,.0f} uniform ones, {found.uniform_batches:,.0f} random batches"
    draws += "" if drawn is None else f", {drawn:,.0f} by their probabilities"
    yield "draws to see all of a row", draws


def _listed_facts(found: ListedEvaluation) -> Facts:
    from batchplan.quality.metrics import percent

    size = f"{counted(found.num_batches, 'batch', 'batches')} of {found.batch_size}"
    yield "plan", f"{size} over {found.num_rows:,} rows"
    recalls = found.hard_negative_recall
    yield (
        "hard negatives in batch",
        f"{recalls['1']:.1%} of the 1 hardest, {recalls['10']:.1%} of the 10 hardest",
    )
    yield "in-batch pairs that are listed", percent(found.listed_share)
    if found.broken is not None:
        yield "pairs that break the guard", f"{found.broken:,} listed ones"
    seen = found.coverage
    yield "rows in the plan", f"{seen.rows_seen:,} ({seen.share_seen:.1%})"
    yield "unknown without vectors", "losses, the gap, similarities"
