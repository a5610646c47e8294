"""Help in panels: options by subject, everyday ones first; planners after the other commands."""

from typing import Any

from typer.core import TyperCommand

from batchplan.cli.statuses import Commands

PLANNERS_PANEL = "Planners"
_ADVANCED = "Advanced"

# The options of planners by panel, in the order that help shows. All others are advanced.
_PANELS = {
    "Basic": (
        "output", "force", "pair", "batch_size", "temperature", "similarity", "mega_batches",
        "quantile", "epoch", "seed", "quiet", "help",
    ),
    "Guard": (
        "guard", "relative_margin", "absolute_margin", "max_score", "guard_penalty",
        "group_column", "label_table", "reference", "reference_pair",
    ),
    "Devices": ("world_size", "scope", "device", "memory", "ray"),
    "Sources": (
        "x_column", "y_column", "id_column", "single", "source_column", "source_mix",
    ),
}  # fmt: skip


class PlanningCommand(TyperCommand):
    """A command that plans, with help in panels. ``--ray`` alone means this machine."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        followed = zip(args, [*args[1:], "-"], strict=False)  # typer has no optional values
        given = [[one, "local"] if one == "--ray" and after[:1] == "-" else [one]
                 for one, after in followed]  # fmt: skip
        return super().parse_args(ctx, [word for words in given for word in words])

    def format_options(self, ctx: Any, formatter: Any) -> None:
        records = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                records[parameter.name] = (parameter.param_type_name, record)
        arguments = [name for name, (kind, _) in records.items() if kind == "argument"]
        known = {name for names in _PANELS.values() for name in names}
        others = [name for name in records if name not in known and name not in arguments]
        for title, names in {"Arguments": arguments, **_PANELS, _ADVANCED: others}.items():
            rows = [records[name][1] for name in names if name in records]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class Application(Commands):
    """The group of commands; its help lists planners after the others."""

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
