"""Help in panels: options by subject, everyday ones first; planners after the other commands."""

from typing import Any, ClassVar

from typer import Exit
from typer.core import TyperCommand

from batchplan.cli.output import print_document
from batchplan.cli.statuses import Commands
from batchplan.pages import linked
from batchplan.planners.partition.options import PartitionOptions

PLANNERS_PANEL = "Planners"
_GUARD = (
    "guard", "relative_margin", "absolute_margin", "max_score", "guard_penalty", "group_column",
    "anchor_id", "positive_id", "negative_id", "known", "label_table", "reference",
    "reference_pair",
)  # fmt: skip
_DEVICES = ("world_size", "scope", "device", "memory", "ray")
_SOURCES = (
    "x_column", "y_column", "id_column", "shard_order", "single", "source_column", "source_mix",
)  # fmt: skip
_OTHERS: tuple[str, ...] = ()  # the panel of all options that no other panel of a command names


_EXPECTED = {"int_parsing": "an integer", "float_parsing": "a number"}


def _wrong(found: dict[str, Any]) -> str:
    """What is wrong with a value, from an error of pydantic."""
    if expected := _EXPECTED.get(found["type"]):
        return f"got {found['input']!r}, expected {expected}"
    return str(found["msg"]).removeprefix("Value error, ")


class PaneledCommand(TyperCommand):
    """A command with help in panels: its own options, then what all commands that measure have."""

    panels: ClassVar = {
        "Options": _OTHERS,
        "Measures": ("temperature", "similarity", "random_trials", "sample", "edges"),
        "Guard": _GUARD,
        "Sources": ("pair", "negatives", "candidates", *_SOURCES),
        "Run": ("seed", "quiet", "verbose", *_DEVICES, "help"),
    }

    def get_help(self, ctx: Any) -> str:
        return linked(super().get_help(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # typer 0.29 shows what pydantic says
            if (found := getattr(error.__cause__, "errors", None)) and hasattr(error, "message"):
                error.message = _wrong(found()[0])
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        records = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                records[parameter.name] = (parameter.param_type_name, record)
        arguments = tuple(name for name, (kind, _) in records.items() if kind == "argument")
        named = {name for names in self.panels.values() for name in names}
        others = tuple(name for name in records if name not in named and name not in arguments)
        for title, names in {"Arguments": arguments, **self.panels}.items():
            rows = [records[name][1] for name in names or others if name in records]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class PlanningCommand(PaneledCommand):
    """A command that plans, everyday options first. ``--ray`` alone means this machine."""

    panels: ClassVar = {
        "Basic": (
            "output", "force", "model", "embed", "pair", "batch_size", "temperature", "similarity",
            "mega_batches", "quantile", "epoch", "seed", "quiet", "help",
        ),
        "Guard": _GUARD,
        "Devices": _DEVICES,
        "Sources": _SOURCES,
        "Advanced": _OTHERS,
    }  # fmt: skip

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        followed = zip(args, [*args[1:], "-"], strict=False)  # typer has no optional values
        given = [[one, "local"] if one == "--ray" and after[:1] == "-" else [one]
                 for one, after in followed]  # fmt: skip
        try:
            return super().parse_args(ctx, [word for words in given for word in words])
        except Exception as error:  # typer does not export the type of an unknown option
            unknown = str(getattr(error, "option_name", "")).removeprefix("--").replace("-", "_")
            if self.name == "plan" and unknown in PartitionOptions.__dataclass_fields__:
                error.message += ". plan chooses it; batchplan partition takes it"  # type: ignore[attr-defined]
            raise


class Application(Commands):
    """The group of commands; its help lists planners after the others.

    Without a command, help is on standard output, where ``| less`` shows it.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:  # which a completion is
            print_document(ctx.get_help() + "\n")
            raise Exit(2)
        help_of = [*args[1:2], "--help"] if args[:1] == ["help"] else args
        return super().parse_args(ctx, help_of)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        shown: dict[str, Any] = {name: self.get_command(ctx, name) for name in self.commands}
        planners = {
            name: command
            for name, command in shown.items()
            if command.rich_help_panel == PLANNERS_PANEL
        }
        others = {name: command for name, command in shown.items() if name not in planners}
        for title, named in (("Commands", others), (PLANNERS_PANEL, planners)):
            limit = formatter.width - 4 - max(map(len, named), default=0)
            rows = [(name, command.get_short_help_str(limit)) for name, command in named.items()]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
