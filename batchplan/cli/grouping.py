"""Commands that take dataclasses: each field of one is an option of the command."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Annotated, Any, cast, get_type_hints

import typer

from batchplan.errors import InputError


def check_paths(
    option: typer.CallbackParam, paths: str | list[str] | None
) -> str | list[str] | None:
    """Require paths that can be read more than once.

    Raises:
        InputError: one of them is standard input, or empty.
    """
    given = [paths] if isinstance(paths, str) else paths or ()
    if "-" in given:
        raise InputError(
            f"{option.name}: standard input cannot be read twice; give a file or folder"
        )
    if "" in given:  # an unset shell variable, which would mean the working directory
        raise InputError(f"{option.name}: got an empty path, expected a file, folder or glob")
    return paths


def grouped(function: Callable[..., None]) -> Callable[..., None]:
    """The function as typer can read it.

    In place of a parameter that is annotated with a dataclass it has the fields of that dataclass,
    which may be dataclasses in turn. What `batchplan.options.option` says of fields, or of
    parameters that have it as their default, becomes an option of typer.
    """
    hints = get_type_hints(function, include_extras=True)
    signature = inspect.signature(function).parameters
    parameters = [
        inner
        for one in signature.values()
        for inner in _parameters(one.name, hints[one.name], one.default)
    ]

    def command(**given: Any) -> None:
        function(**{name: _value(name, hints[name], given) for name in signature})

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__doc__, command.__name__ = function.__doc__, function.__name__
    return command


def _parameters(name: str, hint: Any, default: Any) -> Iterator[inspect.Parameter]:
    if is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        for field in fields(hint):
            yield from _parameters(field.name, hints[field.name], field)
        return
    if isinstance(default, Field):
        if default.metadata:
            hint = Annotated[hint, _shape(default.metadata)]
        default = inspect.Parameter.empty if default.default is MISSING else default.default
    yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _shape(shown: Mapping[str, Any]) -> typer.models.OptionInfo:
    """How typer shows an option. A range is only shown: options check it, with messages and an exit
    status of their own."""
    limits = str(shown["range"] or "")
    shape: typer.models.OptionInfo = typer.Option(
        *shown["flags"],
        help=shown["help"] + f"  [{limits}]" * bool(limits),
        metavar=shown["metavar"],
        callback=check_paths if shown["kind"] == "path" else None,
    )
    return shape


def _value(name: str, hint: Any, given: Mapping[str, Any]) -> Any:
    """The value of a parameter: what was given, or a dataclass of it."""
    if not is_dataclass(hint):
        return given[name]
    hints, made = get_type_hints(hint), cast(Callable[..., Any], hint)
    return made(**{one.name: _value(one.name, hints[one.name], given) for one in fields(hint)})
