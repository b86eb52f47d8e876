"""The command-line options of `turret data prepare`, derived from the classes of its settings."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_origin

import typer
from pydantic import BaseModel

from turret.data.configuration import section_models
from turret.data.reading.schema import Option, PrepareConfig

_FEATURES = "Columns that towers read, and answers show (repeatable)"
_PANELS = {
    "format": "Files",
    "columns": "Columns (looked for if not named)",
    "kinds": "Kinds of events",
    "filters": "Filters",
    "split": "Split",
    "item_features": _FEATURES,
    "user_features": _FEATURES,
    "fields": _FEATURES,
}


@dataclass(frozen=True)
class _SettingOption:
    """The option `--name` of the setting `path`, such as `columns.user`."""

    path: str
    name: str
    type: Any
    value: object  # of a flag
    option: Option

    @property
    def section(self) -> str:
        return self.path.partition(".")[0]

    def parameter(self) -> inspect.Parameter:
        """Return the parameter from which typer makes the option."""
        subject = {"item_features": "Items: ", "user_features": "Users: "}.get(self.section, "")
        declared = typer.Option(
            f"--{self.name}",
            *([f"--{self.option.other_name}"] if self.option.other_name else []),
            metavar=self.option.metavar,
            help=subject + self.option.help,
            rich_help_panel=_PANELS.get(self.section),
        )
        is_flag = self.type is bool
        return inspect.Parameter(
            self.name.replace("-", "_"),
            inspect.Parameter.KEYWORD_ONLY,
            default=False if is_flag else None,
            annotation=Annotated[self.type if is_flag else self.type | None, declared],
        )


def with_settings(*sections: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of some sections or settings, or of all, in place of its `**options`."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter
            for parameter in inspect.signature(command, eval_str=True).parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        added = [
            option.parameter()
            for option in _options()
            if not sections or {option.section, option.path} & {*sections}
        ]
        parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
        signature = inspect.Signature([*parameters[:-1], *added, parameters[-1]])
        command.__signature__ = signature  # type: ignore[attr-defined]
        command.__annotations__ = {name: one.annotation for name, one in signature.parameters.items()}
        return command

    return decorated


def given_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of options as settings by path; the kind of split follows from its other options."""
    settings: dict[str, Any] = {}
    for option in _options():
        value = values.get(option.name.replace("-", "_"))
        if option.type is bool:
            value = option.value if value else None
        # A repeatable option that is not given is an empty list.
        settings[option.path] = None if value in ((), []) else value
    if settings["split.kind"] is None:
        settings["split.kind"] = _split_kind(settings)
    return settings


def _split_kind(settings: Mapping[str, Any]) -> str | None:
    """Return the kind of split that the other options imply; None leaves it to the file or the default."""
    names = {name.removeprefix("split.") for name, value in settings.items() if value is not None}
    if names & {"train", "validation", "test"}:
        return "files"
    is_by_time = names & {"test_fraction", "validation_fraction", "validation_from", "test_from"}
    return "time" if is_by_time else None


@cache
def _options() -> tuple[_SettingOption, ...]:
    # Kinds of split share settings, which are one option.
    return tuple({option.path: option for option in _walk(PrepareConfig, "")}.values())


def _walk(model: type[BaseModel], section: str) -> Iterator[_SettingOption]:
    for name, field in model.model_fields.items():
        is_table = get_origin(field.annotation) is dict  # which is one option
        path, sections = section + name, [] if is_table else section_models(field.annotation)
        option = next((entry for entry in field.metadata if isinstance(entry, Option)), None)
        if option is not None and path != "user_features.text":  # only items have texts
            prefix = section.partition("_")[0] + "-" if "_features" in section else ""
            flag = (option.name or name).replace("_", "-")
            yield _SettingOption(
                f"{path}.kind" if sections else path,
                prefix + flag,
                _type(field.annotation),
                not field.default if field.annotation is bool else None,
                option,
            )
        # Of a form for items or users alone, few turn anything.
        for inner in sections if path not in ("items_format", "users_format") else ():
            yield from _walk(inner, f"{path}.")


def _type(annotation: Any) -> Any:
    """Return the type of an option's value; texts are converted by the settings class."""
    choices = {annotation, *get_args(annotation)}
    if any(get_origin(choice) in (tuple, dict) for choice in choices):
        return list[str]
    # A place stays a text: a path would merge the slashes of a URL.
    return next((kind for kind in (bool, str, float, int) if kind in choices), str)
