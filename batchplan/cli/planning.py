"""The commands that plan: made from their options, so that a new planner needs no code here."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from batchplan.cli import options as shared
from batchplan.cli.text import one_line
from batchplan.errors import OutputError
from batchplan.planners import Planner, makes_table, run_planner
from batchplan.planners.refine import RefinementOptions

if TYPE_CHECKING:
    from batchplan.cli.console import Watch
    from batchplan.data import Embeddings
    from batchplan.plans import Plan
    from batchplan.plans.negatives import Negatives
    from batchplan.runtime import Runtime

PLAN_FILE, REFINED_FILE, TABLE_FILE = "plan.npy", "refined.npy", "negatives.parquet"
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace the output if it exists.")]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")]
PlanFile = Annotated[str, typer.Argument(metavar="PLAN", help="Plan file of any format.")]
_FORMATS = "Plan file: .npy, .parquet, .npz, .jsonl or .txt; - is text on standard output."
Output, Refined = (
    Annotated[str | None, typer.Option("--output", "-o", help=f"{_FORMATS}  [default: {default}]")]
    for default in (PLAN_FILE, REFINED_FILE)
)


def planner_command(name: str, planner: Planner) -> Callable[..., None]:
    """The command of a planner, as a function that typer can read."""

    def work(options: Any, embeddings: Embeddings, runtime: Runtime) -> Plan | Negatives:
        return run_planner(name, embeddings, options, runtime)

    text = f"{planner.help}\n\n\b\nExample:\n  {planner.example}"
    return _command(work, planner.options, text, _output(planner))


def refine_command() -> Callable[..., None]:
    """The command ``refine``: as that of a planner, after the plan that it starts from."""

    def work(
        options: Any, embeddings: Embeddings, runtime: Runtime, plan: str, batch_size: int | None
    ) -> Plan:
        from batchplan.planners.refine import refine_plan
        from batchplan.plans import Plan

        given = Plan.load(plan, batch_size=batch_size, num_rows=embeddings.num_rows)
        return refine_plan(given, embeddings, options, runtime)

    text = (
        "Raise the training loss of a plan by swaps between its batches.\n\nTakes a plan of any "
        "planner, last epoch's for instance; batches keep their sizes and their order.\n\n\b\n"
        "Example:\n  batchplan refine plan.npy embeddings.parquet --passes 4 -o refined.npy"
    )
    first = [("plan", PlanFile), ("batch_size", shared.BatchSize, None)]
    return _command(work, RefinementOptions, text, Refined, first)


def _command(
    work: Callable[..., Plan | Negatives],
    kind: type[Any],
    text: str,
    output: Any,
    first: Sequence[tuple[Any, ...]] = (),
) -> Callable[..., None]:
    """Shared arguments around the fields of the options: ``work`` gets the options, the embeddings,
    the runtime and the arguments named in ``first``."""

    def command(**given: Any) -> None:
        own = {field.name: given.pop(field.name) for field in fields(kind)}
        extra = {one[0]: given.pop(one[0]) for one in first}
        _run(partial(work, **extra), kind(**own), extra.get("plan"), **given)

    hints = get_type_hints(kind)
    named = [(f.name, hints[f.name], f.metadata, f.default) for f in fields(kind)]
    parameters = [
        *(_parameter(*one) for one in (*first, ("embeddings", shared.Inputs))),
        _parameter("output", output, None),
        _parameter("force", Force, False),
        *(
            _parameter(name, Annotated[hint, typer.Option(*more["flags"], help=more["help"])], used)
            for name, hint, more, used in named
        ),
        *(_parameter(*one) for one in _AFTER),
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__doc__ = text
    return command


def _output(planner: Planner) -> Any:
    """The output option; its default depends on whether a plan or a table is made."""
    if all(field.name != "as_batches" for field in fields(planner.options)):
        return Output
    text = f"Table of negatives (.parquet); with --as-batches a plan: {_FORMATS[11:]}"
    default = f"{TABLE_FILE}, or {PLAN_FILE} with --as-batches"
    return Annotated[
        str | None, typer.Option("--output", "-o", help=f"{text}  [default: {default}]")
    ]


_AFTER: list[tuple[str, Any, Any]] = [
    ("pair", shared.Pair, None),
    ("x_column", shared.XColumn, None),
    ("y_column", shared.YColumn, None),
    ("id_column", shared.IdColumn, None),
    ("cast", shared.Cast, False),
    ("seed", shared.Seed, 0),
    ("device", shared.Device, "auto"),
    ("memory", shared.Memory, None),
    ("json", Json, False),
    ("quiet", shared.Quiet, False),
    ("verbose", shared.Verbose, False),
]


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> Any:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _run(
    work: Callable[[Any, Embeddings, Runtime], Plan | Negatives],
    options: Any,
    refined: str | None,
    *,
    output: str | None,
    force: bool,
    seed: int,
    device: str,
    memory: str | None,
    json: bool,
    quiet: bool,
    verbose: bool,
    **reading: Any,
) -> None:
    from batchplan.cli.console import Watch
    from batchplan.plans import check_output
    from batchplan.plans.negatives import check_table_output

    if output is None:
        output = TABLE_FILE if makes_table(options) else REFINED_FILE if refined else PLAN_FILE
    if json and output == "-":
        raise typer.BadParameter("--json and --output - both want standard output; choose one")
    if output == "-" and sys.stdout is None:
        raise OutputError("standard output: is closed; give a file name to --output")
    inputs = [*reading["embeddings"], *(reading["pair"] or []), *([refined] if refined else [])]
    inputs += getattr(options, "exclude", None) or []  # plans that this one reads
    others = ("from_plan", "label_table", "class_embeddings")
    inputs += [path for name in others if (path := getattr(options, name, None))]
    check = check_table_output if makes_table(options) else check_output
    check(output, force=force, inputs=inputs)
    watch = Watch(quiet=quiet, verbose=verbose)
    runtime = shared.make_runtime(device, memory, seed, watch)
    with watch.watching():
        embeddings = shared.read(runtime, **reading)
        plan = work(options, embeddings, runtime)
        with runtime.stage("write"):
            plan.save(output, force=force, ids=embeddings.ids, inputs=inputs)
    if json:
        shared.print_json(_summary(plan, embeddings, watch, output))
    elif not quiet:
        _show_summary(plan, embeddings, watch, output)


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
