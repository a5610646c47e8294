"""The commands that plan: made from their options, so that a new planner needs no code here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchplan.cli.grouping import grouped
from batchplan.cli.options import (
    BatchSize,
    Computing,
    Inputs,
    PlanFile,
    Reading,
    Speaking,
    print_json,
    require_output,
)
from batchplan.errors import OutputError
from batchplan.options import paths_of
from batchplan.planners import Planner, makes_table, run_planner
from batchplan.refinement.options import RefineOptions
from batchplan.text import one_line

if TYPE_CHECKING:
    from batchplan.cli.console import Watch
    from batchplan.data import Embeddings
    from batchplan.plans import Plan
    from batchplan.plans.negatives import Negatives
    from batchplan.runtime import Runtime

PLAN_FILE, REFINED_FILE, TABLE_FILE = "plan.npy", "refined.npy", "negatives.parquet"
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace the output if it exists.")]
Summary = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")]
_FORMATS = "Plan file: .npy, .parquet, .npz, .jsonl or .txt; - is text on standard output."
Output = Annotated[
    str | None, typer.Option("--output", "-o", help=f"{_FORMATS}  [default: {PLAN_FILE}]")
]
Refined = Annotated[
    str | None, typer.Option("--output", "-o", help=f"{_FORMATS}  [default: {REFINED_FILE}]")
]


def planner_command(name: str, planner: Planner) -> Callable[..., None]:
    """The command of a planner, as a function that typer can read."""

    def command(
        embeddings: Inputs,
        options: Any,
        reading: Reading,
        running: Computing,
        speaking: Speaking,
        output: str | None = None,
        force: Force = False,
        json: Summary = False,
    ) -> None:
        def work(data: Embeddings, runtime: Runtime) -> Plan | Negatives:
            return run_planner(name, data, options, runtime)

        table = makes_table(options)
        path = (TABLE_FILE if table else PLAN_FILE) if output is None else output
        inputs = [*embeddings, *paths_of(options, reading)]
        how = (reading, running, speaking)
        _run(work, embeddings, inputs, path, *how, table=table, force=force, json=json)

    command.__annotations__ |= {"options": planner.options, "output": _output(planner)}
    command.__doc__ = f"{planner.help}\n\n\b\nExample:\n  {planner.example}"
    return grouped(command)


@grouped
def refine(
    plan: PlanFile,
    embeddings: Inputs,
    options: RefineOptions,
    reading: Reading,
    running: Computing,
    speaking: Speaking,
    batch_size: BatchSize = None,
    output: Refined = None,
    force: Force = False,
    json: Summary = False,
) -> None:
    """Raise the training loss of a plan by swaps between its batches.

    Takes a plan of any planner, last epoch's for instance; batches keep their sizes and their
    order.

    \b
    Example:
      batchplan refine plan.npy embeddings.parquet --passes 4 -o refined.npy
    """

    def work(data: Embeddings, runtime: Runtime) -> Plan:
        from batchplan.plans import Plan
        from batchplan.refinement.plan import refine_plan

        given = Plan.load(plan, batch_size=batch_size, num_rows=data.num_rows)
        return refine_plan(given, data, options, runtime)

    path = REFINED_FILE if output is None else output
    inputs = [plan, *embeddings, *paths_of(options, reading)]
    _run(work, embeddings, inputs, path, reading, running, speaking, force=force, json=json)


def _output(planner: Planner) -> Any:
    """The output option; its default depends on whether a plan or a table is made."""
    if all(field.name != "as_batches" for field in fields(planner.options)):
        return Output
    text = f"Table of negatives (.parquet); with --as-batches a plan: {_FORMATS[11:]}"
    default = f"{TABLE_FILE}, or {PLAN_FILE} with --as-batches"
    return Annotated[
        str | None, typer.Option("--output", "-o", help=f"{text}  [default: {default}]")
    ]


def _run(
    work: Callable[[Embeddings, Runtime], Plan | Negatives],
    embeddings: list[str],
    inputs: list[str],
    output: str,
    reading: Reading,
    running: Computing,
    speaking: Speaking,
    *,
    force: bool,
    json: bool,
    table: bool = False,
) -> None:
    """Read, plan, write and tell; ``inputs`` are kept from being written over."""
    from batchplan.plans import check_output
    from batchplan.plans.negatives import check_table_output

    if json and output == "-":
        raise typer.BadParameter("--json and --output - both want standard output; choose one")
    if output == "-" and sys.stdout is None:
        raise OutputError("standard output: is closed; give a file name to --output")
    if json:
        require_output()
    check = check_table_output if table else check_output
    check(output, force=force, inputs=inputs)
    watch = speaking.watch()
    runtime = running.runtime(watch)
    with watch.watching():
        data = reading.load(embeddings, runtime)
        plan = work(data, runtime)
        with runtime.stage("write"):
            plan.save(output, force=force, ids=data.ids, inputs=inputs)
    if json:
        print_json(_summary(plan, data, watch, output))
    elif not speaking.quiet:
        _show_summary(plan, data, watch, output)


def _size(plan: Plan | Negatives) -> dict[str, int | str]:
    """How much was planned: batches, or anchors and the negatives of each."""
    from batchplan.plans import Plan

    if isinstance(plan, Plan):
        return {
            "num_batches": plan.num_batches,
            "batch_size": plan.batch_size,
            "world_size": plan.metadata.world_size,
            "scope": plan.metadata.scope,
        }
    return {"num_anchors": len(plan), "negatives_per_anchor": plan.per_anchor}


def _size_fact(plan: Plan | Negatives) -> tuple[str, str]:
    first, second, *devices = _size(plan).values()
    if not devices:
        return "negatives", f"{second} for each of {first:,} rows"
    world_size, scope = devices
    whose = f" {'for' if scope == 'device' else 'across'} {world_size} devices"
    return "batches", f"{first:,} of {second}{whose * (world_size != 1)}"


def _summary(
    plan: Plan | Negatives, embeddings: Embeddings, watch: Watch, output: str
) -> dict[str, Any]:
    from batchplan.runtime import peak_device_memory, peak_memory

    return {
        "planner": plan.metadata.planner,
        "output": output,
        "num_rows": embeddings.num_rows,
        "dim": embeddings.dim,
        **_size(plan),
        **plan.metadata.metrics,
        "seconds": {stage: round(taken, 4) for stage, taken in watch.seconds.items()},
        "seconds_total": round(watch.total_seconds(), 4),
        "peak_memory_bytes": peak_memory(),
        "peak_device_memory_bytes": peak_device_memory(),
        "fingerprint": embeddings.fingerprint,
    }


def _show_summary(
    plan: Plan | Negatives, embeddings: Embeddings, watch: Watch, output: str
) -> None:
    from batchplan.cli.console import facts
    from batchplan.runtime import format_bytes

    summary = _summary(plan, embeddings, watch, output)
    shape = f"{embeddings.num_rows:,} x {embeddings.dim} {embeddings.x.dtype}"
    rows = [("rows", shape if embeddings.paired else f"{shape}, one matrix (no --pair)")]
    metrics = plan.metadata.metrics
    if "edges" in metrics:
        mean = metrics["edges"] / embeddings.num_rows
        rows += [
            ("edges", f"{metrics['edges']:,} ({mean:.1f} a row)"),
            ("threshold", f"{metrics['threshold']:.4f}"),
            ("edges inside batches", f"{metrics['edge_share']:.1%}"),
        ]
    if "refine_gain" in metrics:
        gain = f"mean loss {metrics['refine_gain']:+.4f}"
        rows.append(
            ("refinement", f"{metrics['passes']} pass{'es' * (metrics['passes'] != 1)}, {gain}")
        )
    if metrics.get("broken_pairs") is not None:
        rows.append(("pairs not kept apart", f"{metrics['broken_pairs']:,}"))
    stages = "  ".join(f"{stage} {taken:.2f}" for stage, taken in watch.seconds.items())
    memory = format_bytes(summary["peak_memory_bytes"])
    if summary["peak_device_memory_bytes"]:
        memory += f", {format_bytes(summary['peak_device_memory_bytes'])} on the device"
    rows += [
        _size_fact(plan),
        ("seconds", f"{stages}  total {watch.total_seconds():.2f}"),
        ("peak memory", memory),
        ("plan", "standard output" if output == "-" else one_line(output)),
    ]
    watch.console.print(facts(rows), soft_wrap=True)
