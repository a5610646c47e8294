"""Lets commands take dataclasses: each of their fields is an option of the command."""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from types import NoneType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import typer

from batchplan.errors import InputError
from batchplan.files.inputs import is_glob
from batchplan.files.remote import local_path, no_url
from batchplan.options import UNIONS

_NEED_NOT_EXIST = ("resume", "model")  # a folder to make, and perhaps a name on the Hub


def check_paths(
    option: typer.CallbackParam, paths: str | list[str] | None
) -> str | list[str] | None:
    """Require paths that can be read more than once.

    Raises:
        InputError: one of them is standard input or empty, or does not exist; globs and URLs are
            not looked for.
    """
    names = [paths] if isinstance(paths, str) else paths or ()
    if "-" in names:
        raise InputError(
            f"{option.name}: standard input cannot be read twice; give a file or folder"
        )
    if "" in names:  # an unset shell variable; it would mean the working directory
        raise InputError(f"{option.name}: got an empty path, expected a file, folder or glob")
    for path in filter(None, map(local_path, names)):
        other = option.name in _NEED_NOT_EXIST or (option.name, str(path)) == ("negatives", "none")
        if not (other or is_glob(path) or os.path.lexists(path)):
            raise InputError(f"{path}: no such file or folder; check the path")
    return paths


def check_no_urls(option: typer.CallbackParam, paths: str | list[str]) -> str | list[str]:
    """Require that no path is a URL, and the same as `check_paths`."""
    for name in [paths] if isinstance(paths, str) else paths:
        no_url(name)
    check_paths(option, paths)
    return paths


def argument(metavar: str, help: str, check: Any = check_no_urls) -> Any:  # noqa: A002
    """Return an argument for typer whose words ``check`` gets as its callback."""
    return typer.Argument(metavar=metavar, callback=check, help=help)


def grouped(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function with a signature that typer can read.

    A parameter annotated with a dataclass becomes one parameter for each field; fields may be
    dataclasses too. A field or default made by `batchplan.options.option` becomes an option of
    typer.
    """
    hints = get_type_hints(function, include_extras=True)
    signature = inspect.signature(function).parameters
    parameters = [
        inner
        for outer in signature.values()
        for inner in _parameters(outer.name, hints[outer.name], outer.default)
    ]

    def command(**values: Any) -> None:
        function(**{name: _value(name, hints[name], values) for name in signature})

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
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
            hint, words = _without_words(hint)
            hint = Annotated[hint, _shape(default.metadata, words)]
        default = inspect.Parameter.empty if default.default is MISSING else default.default
    yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _without_words(hint: Any) -> tuple[Any, tuple[str, ...]]:
    """Split a union into its types without the Literal, and the words of that Literal.

    Typer cannot read a union of a Literal and other types.
    """
    if get_origin(hint) not in UNIONS:
        return hint, ()
    others = [one for one in get_args(hint) if get_origin(one) is not Literal]
    if set(others) <= {NoneType}:
        return hint, ()
    words = [word for one in get_args(hint) if one not in others for word in get_args(one)]
    return Union[*others], tuple(words)


def _shape(shown: Mapping[str, Any], words: tuple[str, ...] = ()) -> typer.models.OptionInfo:
    """Return the option for typer. If there are ``words``, it takes them and integers.

    Typer only shows the range. The dataclass checks it, with its own message and exit status.
    """

    def number(text: str) -> int | str:
        try:
            return text if text in words else int(text)
        except ValueError:
            expected = " or ".join(("integer", *words))
            raise typer.BadParameter(f"{text!r} is not a valid {expected}.") from None

    limits = str(shown["range"] or "")
    shape: typer.models.OptionInfo = typer.Option(
        *shown["flags"],
        help=shown["help"] + f"  [{limits}]" * bool(limits),
        metavar=f"<{'|'.join(('int', *words))}>" if words else shown["metavar"],
        parser=number if words else None,
        callback=check_paths if shown["kind"] == "path" else None,
    )
    return shape


def _value(name: str, hint: Any, values: Mapping[str, Any]) -> Any:
    """Return the value of a parameter, or the dataclass of the values of its fields."""
    if not is_dataclass(hint):
        return values[name]
    hints, kind = get_type_hints(hint), cast(Callable[..., Any], hint)
    names = [field.name for field in fields(hint)]
    return kind(**{name: _value(name, hints[name], values) for name in names})
