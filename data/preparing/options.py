"""The command-line options of `turret data prepare`, derived from the classes of its settings."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, get_args, get_origin

import typer
from pydantic import BaseModel

from turret.data.configuration import section_models
from turret.data.reading.schema import PrepareConfig

_FEATURES = "Columns that towers read, and answers show (repeatable)"
_DATABASES = "Databases: sqlite:///, duckdb:///, postgresql:// and mysql://, or a file"
_PANELS = {
    **dict.fromkeys(("sql", "items_sql", "users_sql", "since"), _DATABASES),
    "source_files": "Files",
    "answers": "Files",
    "format": "Files",
    "columns": "Columns (looked for if not named)",
    "kinds": "Kinds of events",
    "filters": "Filters",
    "split": "Split",
    "item_features": _FEATURES,
    "user_features": _FEATURES,
    "context": _FEATURES,
    "fields": _FEATURES,
    "display": _FEATURES,
}


def with_settings(*sections: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of some sections or settings, or of all, in place of its `**options`."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        *first, last, _ = (
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in signature.parameters.values()
        )
        added = [
            parameter
            for path, parameter in _options().items()
            if not sections or {path, path.partition(".")[0]} & {*sections}
        ]
        signature = inspect.Signature([*first, *added, last])
        command.__signature__ = signature  # type: ignore[attr-defined]
        command.__annotations__ = {
            name: parameter.annotation for name, parameter in signature.parameters.items()
        }
        return command

    return decorated


def given_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of options as settings by path; the kind of split follows from its other options."""
    settings: dict[str, Any] = {}
    for path, parameter in _options().items():
        value = values.get(parameter.name)
        if parameter.default is False:
            value = not parameter.name.startswith("no_") if value else None
        # A repeatable option that is not given is an empty list.
        settings[path] = None if value in ((), []) else value
    if settings["split.kind"] is None:
        names = {path.removeprefix("split.") for path, value in settings.items() if value is not None}
        if names & {"train", "validation", "test"}:
            settings["split.kind"] = "files"
        elif names & {"test_fraction", "validation_fraction", "validation_from", "test_from"}:
            settings["split.kind"] = "time"
    return settings


@cache
def _options() -> dict[str, inspect.Parameter]:
    """Return the parameters from which typer makes the options, by the paths of their settings."""
    return dict(_walk(PrepareConfig, ""))


def _walk(model: type[BaseModel], section: str) -> Iterator[tuple[str, inspect.Parameter]]:
    prefix = section.partition("_")[0] if "_features" in section else ""  # "item" or "user"
    for name, field in model.model_fields.items():
        is_table = get_origin(field.annotation) in (dict, tuple)  # a table is one option
        path, sections = section + name, [] if is_table else section_models(field.annotation)
        if field.description and path != "user_features.text":  # only items have texts
            shown: dict[str, Any] = {**field.json_schema_extra}  # type: ignore[dict-item]
            flags = ["-".join([*[prefix] * bool(prefix), flag]) for flag in (shown["names"] or name).split()]
            flags = [flag.replace("_", "-") for flag in flags]
            declared = typer.Option(
                *(f"--{flag}" for flag in flags),
                metavar=shown["metavar"],
                help=(f"{prefix.title()}s: " if prefix else "") + field.description,
                rich_help_panel=_PANELS.get(path.partition(".")[0]),
            )
            is_flag = field.annotation is bool
            parameter = inspect.Parameter(
                # The argument of the commands is called `source`.
                name if flags[0] == "source" else flags[0].replace("-", "_"),
                inspect.Parameter.KEYWORD_ONLY,
                default=False if is_flag else None,
                annotation=Annotated[bool if is_flag else _type(field.annotation) | None, declared],
            )
            yield f"{path}.kind" if sections else path, parameter
        # Few people change the form of the items or users file alone, so it has no options.
        for inner in sections if path not in ("items_format", "users_format") else ():
            yield from _walk(inner, f"{path}.")


def _type(annotation: Any) -> Any:
    """Return the type of an option's value; texts are converted by the settings class."""
    choices = {annotation, *get_args(annotation)}
    if any(get_origin(choice) in (tuple, dict) for choice in choices):
        return list[str]
    # A place stays a text: a path would merge the slashes of a URL.
    return next((kind for kind in (str, float, int) if kind in choices), str)
