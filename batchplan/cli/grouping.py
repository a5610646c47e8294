"""Commands that take dataclasses: each field of one is an option of the command."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import Field, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from batchplan.errors import InputError

_METAVARS = {"path": "FILE", "column": "COLUMN"}


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
    """The function as typer can read it: instead of a parameter that is annotated with a dataclass
    it has the fields of that dataclass, made with `batchplan.options.option`."""
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}

    def command(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        function(**given)

    parameters: list[inspect.Parameter] = []
    for one in inspect.signature(function).parameters.values():
        if one.name in groups:
            parameters += _options(groups[one.name])
        else:
            parameters.append(_parameter(one.name, hints[one.name], one.default))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__doc__, command.__name__ = function.__doc__, function.__name__
    return command


def _options(kind: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        yield _parameter(field.name, _annotation(hints[field.name], field), field.default)


def _annotation(hint: Any, field: Field[Any]) -> Any:
    shown = field.metadata
    if not shown:
        return hint
    kind = shown["kind"]
    shape = typer.Option(
        *shown["flags"],
        help=shown["help"],
        metavar=None if kind is None else _METAVARS[kind],
        callback=check_paths if kind == "path" else None,
    )
    return Annotated[hint, shape]


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)
