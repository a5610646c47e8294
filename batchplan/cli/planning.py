"""The commands that plan, built from the options of planners: a new planner needs no code here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from batchplan.cli.grouping import grouped
from batchplan.cli.options import (
    BATCH_SIZE,
    FORCE,
    JSON,
    Inputs,
    ListSession,
    PlanFile,
    Session,
    load_plan,
)
from batchplan.cli.output import print_json
from batchplan.cli.spelling import spelled
from batchplan.errors import InputError, OptionError
from batchplan.options import LIMITS, MUCH_EXCLUDED, option, paths_of
from batchplan.planners import Planner, run_planner
from batchplan.planners.common.options import PlainOptions, TableOptions
from batchplan.refinement.options import RefineOptions
from batchplan.runtime import COMMAND
from batchplan.text import one_line

if TYPE_CHECKING:  # these load numpy and rich
    from batchplan.cli.console import Watch
    from batchplan.cli.options import Opened
    from batchplan.plans import Plan
    from batchplan.quality.gain import Gain

_PLAN_FILE, _TABLE_FILE = "plan.npy", "negatives.parquet"
_FORMATS = ".npy, .parquet, .npz, .jsonl or .txt, or - for text on standard output."
# Options that the command of `plan` always names: what it chose, and what the training has.
_ALWAYS_SPELLED = ("batch_size", "temperature", "mega_batches", "relative_margin", "guard_penalty")
_MEASURED = "temperature", "similarity"  # options of planners that evaluations have too
_REFERENCE = "reference", "reference_pair"


def _output(default: str) -> Any:
    return option(default, f"Plan file: {_FORMATS}", "--output", "-o")


class _Worked(NamedTuple):
    """The result of a command.

    Attributes:
        made: a plan or a table of negatives.
        options: the options that made it.
        before: the plan that it improves, if any.
        command: the command line that makes the same plan, if the planner was chosen.
    """

    made: Any
    options: Any
    before: Plan | None = None
    command: str | None = None


def planner_command(name: str, planner: Planner) -> Callable[..., None]:
    """Return the command of a planner, as a function that typer can read."""
    shown = _output(_PLAN_FILE)
    if issubclass(planner.options, TableOptions):
        default = f"{_TABLE_FILE} or {_PLAN_FILE}"
        content = "Table (.parquet), or with --as-batches a plan file"
        shown = option(None, f"{content}.  [default: {default}]", "--output", "-o")

    def command(
        *,
        embeddings: Inputs,
        options: Any,
        session: Session,
        output: str | None = shown,
        force: bool = FORCE,
        json: bool = JSON,
    ) -> None:
        def work(opened: Opened) -> _Worked:
            return _Worked(run_planner(name, opened.data, options, opened.runtime), options)

        table = options.makes_table()
        path = (_TABLE_FILE if table else _PLAN_FILE) if output is None else output
        read = paths_of(options, session)
        _run(work, session, embeddings or [], path, read, table=table, force=force, json=json)

    command.__annotations__["options"] = planner.options
    if planner.lists:
        command.__annotations__["session"] = ListSession
        command.__kwdefaults__ = {**(command.__kwdefaults__ or {}), "embeddings": None}
    command.__doc__ = f"{planner.help}\n\n\b\nExample:\n  {planner.example}"
    return grouped(command)


@grouped
def plan(
    embeddings: Inputs,
    options: PlainOptions,
    session: Session,
    model: str | None = option(
        None,
        "Plan a table of texts, from the token vectors of this model: a folder, or a name on the "
        "Hub. Takes seconds, and keeps the vectors next to the plan.",
    ),
    embed: bool = option(False, "Run the whole model of --model instead.", "--embed"),
    output: str = _output(_PLAN_FILE),
    force: bool = FORCE,
    json: bool = JSON,
) -> None:
    """Choose a planner and its options for the data, and plan.

    Prints what it chose, why, the full command that writes the same plan, and the verdict on it.

    \b
    Example:
      batchplan plan embeddings.parquet -o plan.npy
    """
    watch = None
    if embed and model is None:
        raise OptionError("embed: given without --model; name the model that embeds the texts")
    if model is not None:
        from batchplan.cli.embedding import embedded_texts

        _check(output, [*embeddings, *paths_of(options, session)], force, json)
        options = _labelled(options, embeddings)
        folder, session, watch = embedded_texts(
            embeddings, model, output, options, session, whole=embed, force=force
        )
        embeddings = [folder]

    def work(opened: Opened) -> _Worked:
        from batchplan.planners.choice import choose

        wanted = {field.name: getattr(options, field.name) for field in fields(options)}
        name, settings = choose(opened.data, wanted, opened.runtime)
        loud = replace(session, quiet=False, verbose=False)
        command = spelled(name, embeddings, settings, loud, always=_ALWAYS_SPELLED, output=output)
        opened.runtime.note(COMMAND, command)
        made = run_planner(name, opened.data, settings, opened.runtime)
        return _Worked(made, settings, command=command)

    _run(
        work, session, embeddings, output, paths_of(options, session), force=force, json=json,
        watch=watch,
    )  # fmt: skip


@grouped
def refine(
    *,
    plan: PlanFile,
    embeddings: Inputs = None,  # type: ignore[assignment]  # with --candidates
    options: RefineOptions,
    session: ListSession,
    batch_size: int | None = BATCH_SIZE,
    output: str = _output("refined.npy"),
    force: bool = FORCE,
    json: bool = JSON,
) -> None:
    """Raise the loss of a plan by swaps between its batches.

    Batches keep their sizes and their order.

    \b
    Example:
      batchplan refine plan.npy embeddings.parquet --passes 4 -o refined.npy
    """

    def work(opened: Opened) -> _Worked:
        from batchplan.refinement.plan import refine_plan

        before = load_plan(plan, batch_size, opened.data.num_rows)
        if opened.data.ids is not None:
            _require_ids(plan, before, opened.data.ids)
        made = refine_plan(before, opened.data, options, opened.runtime)
        return _Worked(made, options, before=before)

    read = [plan, *paths_of(options, session)]
    _run(work, session, embeddings or [], output, read, force=force, json=json)


def _require_ids(path: str, plan: Plan, ids: Any) -> None:
    """Require that a Parquet plan has no other ids than the data, which may be embedded anew."""
    from batchplan.data.ids import Ids, check_same
    from batchplan.plans.formats.parquet import entry_ids

    if (planned := entry_ids(Path(path), plan.digest)) is not None:
        own = Ids(ids.take(plan.rows), "the data", lambda entry: f"row {plan.rows[entry]}")
        check_same(Ids(planned, "the plan"), own)


def _labelled(options: PlainOptions, texts: list[str]) -> PlainOptions:
    """Return options that read columns of labels from the table of texts; raises InputError."""
    from batchplan.data.formats import has_columns
    from batchplan.files.remote import located

    named = options.names_ids or options.group_column is not None
    if not named or options.label_table is not None:
        return options
    path = located(texts[0])
    if len(texts) > 1 or not path.is_file() or not has_columns(path):
        raise InputError(
            f"{texts[0]}: columns of groups and ids are read from one Parquet or Arrow file; write "
            "the texts as one, or give these columns of all rows with --label-table"
        )
    return replace(options, label_table=texts[0])


def _gain(worked: _Worked, opened: Opened) -> Gain | None:
    """Measure the rise of the objective and the pairs that break the limit.

    Return None if there were no swaps and there is no limit, unless the planner was chosen.
    """
    plan, options = worked.made, worked.options
    limits: dict[str, Any] = {name: getattr(options, name, None) for name in LIMITS}
    limited = any(limit is not None for limit in limits.values())
    if not (limited or plan.metadata.metrics.get("passes") or worked.command):
        return None
    from batchplan.data.answer_options import ANSWER_OPTIONS
    from batchplan.quality import EvaluationOptions, RowFacts
    from batchplan.quality.gain import measured_gain

    names = (*_MEASURED, *ANSWER_OPTIONS, *(_REFERENCE if limited else ()))
    usual = {name: getattr(options, name) for name in names if hasattr(options, name)}
    settings = EvaluationOptions(**usual, **limits, guard=limited)
    facts = RowFacts.named(opened.data, options, settings, opened.runtime)
    penalty = (getattr(options, "guard_penalty", None) or 0.0) if limited else 0.0
    return measured_gain(
        plan, opened.data, facts, settings, penalty, opened.runtime, before=worked.before
    )


def _run(
    work: Callable[[Opened], _Worked],
    session: Session,
    embeddings: list[str],
    output: str,
    read: list[str],
    *,
    force: bool,
    json: bool,
    table: bool = False,
    watch: Watch | None = None,
) -> None:
    """Read, plan, write and summarise. The output must not overwrite the embeddings or ``read``.

    With ``watch``, the embeddings are a folder that it has seen embedded.
    """
    read = [*embeddings, *read]
    _check(output, read, force, json, table)
    with session.opened(embeddings, watch) as opened:
        worked = work(opened)
        with opened.runtime.stage("write"):
            worked.made.save(output, force=force, ids=opened.data.ids, inputs=read)
        gained = None
        if (json or not session.quiet) and not table and hasattr(opened.data, "dim"):
            gained = _gain(worked, opened)
    summary = _summary(worked.made, opened, output, gained)
    if worked.command is not None:
        summary["command"] = worked.command
        if gained is not None:
            from batchplan.quality.verdict import sentence_on

            summary["verdict"] = sentence_on(worked.made, gained)
    if watch is not None:
        summary["vectors"] = embeddings[0]
    if json:
        print_json(summary)
    else:
        opened.watch.summarize(_facts(summary, opened))


def _check(output: str, read: list[str], force: bool, json: bool, table: bool = False) -> None:
    """Refuse an output that cannot or must not be written."""
    if table:
        from batchplan.plans.negatives import check_table_output as check
    else:
        from batchplan.plans.output import check_output as check

    if output == "-" and json:
        raise typer.BadParameter("--json and --output - both write to standard output; choose one")
    check(output, force=force, inputs=read)


def _summary(plan: Any, opened: Opened, output: str, gained: Gain | None) -> dict[str, Any]:
    from batchplan import plans
    from batchplan.runtime import peak_device_memory, peak_memory

    spent = opened.watch.spent()
    size: dict[str, Any]
    if isinstance(plan, plans.Plan):
        size = {
            "num_batches": plan.num_batches,
            "batch_size": plan.batch_size,
            "world_size": plan.metadata.world_size,
            "scope": plan.metadata.scope,
        }
    else:
        size = {"num_anchors": len(plan.anchors), "negatives_per_anchor": plan.per_anchor}
    return {
        "planner": plan.metadata.planner,
        "output": output,
        "num_rows": opened.data.num_rows,
        **({"dim": opened.data.dim} if hasattr(opened.data, "dim") else {}),
        **size,
        **plan.metadata.metrics,
        **({} if gained is None else {"gain": asdict(gained)}),
        "seconds": {stage: round(taken, 4) for stage, taken in spent.items()},
        "seconds_total": round(sum(spent.values()), 4),
        "peak_memory_bytes": peak_memory(),
        "peak_device_memory_bytes": peak_device_memory(),
        "fingerprint": opened.data.fingerprint,
    }


def _facts(summary: dict[str, Any], opened: Opened) -> Iterator[tuple[str, str]]:
    """Yield the summary as names and texts."""
    from batchplan.runtime import format_bytes

    data = opened.data
    if hasattr(data, "dim"):
        shape = f"{data.num_rows:,} x {data.dim} {data.x.dtype}"
        mined = f", {len(data.negatives)} mined negatives a row" if data.negatives else ""
        yield "rows", f"{shape}{mined}" if data.paired else f"{shape}, one matrix{mined}"
    else:
        yield "rows", f"{data.num_rows:,} with {len(data.indices):,} candidates"
    if "gain" in summary:
        yield from _gain_facts(summary, data.num_rows)
    limited = summary.get("gain", {}).get("limited")
    if summary.get("broken_pairs") is not None and not limited:
        yield "pairs not separated", f"{summary['broken_pairs']:,}"
    if "num_anchors" in summary:
        per_anchor, anchors = summary["negatives_per_anchor"], summary["num_anchors"]
        yield "negatives", f"{per_anchor} for each of {anchors:,} rows"
    else:
        devices, whose = summary["world_size"], "for" if summary["scope"] == "device" else "across"
        many = f" {whose} {devices} devices" if devices > 1 else ""
        yield "batches", f"{summary['num_batches']:,} of {summary['batch_size']}{many}"
    yield opened.watch.timing()
    memory = format_bytes(summary["peak_memory_bytes"])
    if summary["peak_device_memory_bytes"]:
        memory += f", {format_bytes(summary['peak_device_memory_bytes'])} on the device"
    yield "peak memory", memory
    output = summary["output"]
    yield "plan", "standard output" if output == "-" else one_line(output)
    if "vectors" in summary:
        yield "vectors", one_line(summary["vectors"])
    if "verdict" in summary:
        yield "verdict", summary["verdict"]


def _gain_facts(summary: dict[str, Any], num_rows: int) -> Iterator[tuple[str, str]]:
    """Yield the rise of the objective, and the share of pairs that break the limit."""
    from batchplan.quality.verdict import excludes_much

    gain = summary["gain"]
    plan, random = gain["plan"], gain["random"]
    if summary.get("passes"):
        source = "random batches" if gain["before"] is None else "the plan before"
        start = (gain["before"] or random)["objective"]
        yield (
            "objective",
            f"{start:.4f} -> {plan['objective']:.4f} nats ({plan['objective'] - start:+.4f}), from "
            f"{source}",
        )
    if gain["limited"]:
        yield (
            "guard",
            f"{plan['too_similar']:.1%} of in-batch pairs too similar "
            f"(random {random['too_similar']:.1%})",
        )
        if random["too_similar"] > MUCH_EXCLUDED:
            yield "warning", excludes_much(random["too_similar"], num_rows)
