"""Settings from a TOML file and the command line, validated with readable messages."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from reprlib import repr as shortened
from typing import Annotated, Any, Literal, TypeGuard, TypeVar, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError
from pydantic_core import ErrorDetails, to_json

from turret.data.errors import ConfigurationError
from turret.data.moments import milliseconds_of

Model = TypeVar("Model", bound=BaseModel)

_URL = r"^[A-Za-z][A-Za-z0-9+.-]+://.+$"
Url = Annotated[str, Field(pattern=_URL)]
"""A URL such as `s3://bucket/events.parquet`."""
Place = Url | Path
Pause = Annotated[str, AfterValidator(lambda pause: milliseconds_of(pause) and pause)]
"""A number with a unit such as `30m`."""
# The rule that merges repeated events of a user with an item; see `data.histories.duplicates`.
Duplicates = Literal["keep", "exact", "first", "last", "strongest"]


class Shown(BaseModel, frozen=True, extra="forbid"):
    """The label and the unit with which people see a field of items; a unit may be a currency such as EUR."""

    label: str | None = Field(default=None, min_length=1, max_length=60)
    unit: str | None = Field(default=None, min_length=1, max_length=20)


def _shown(value: object) -> object:
    """Read a list of NAME[:LABEL[:UNIT]] as a table."""
    if not isinstance(value, (list, tuple)):
        return value
    table: dict[str, dict[str, str]] = {}
    for entry in value:
        name, *rest = str(entry).split(":", 2)
        if not name or name in table:
            raise ValueError(f"{entry!r}: give NAME[:LABEL[:UNIT]] once for each field")
        table[name] = {key: text for key, text in zip(("label", "unit"), rest, strict=False) if text}
    return table


class DisplaySettings(BaseModel, frozen=True, extra="forbid"):
    """The fields of items that people see: `title` names an item, and the fields of `show` follow in order.

    In TOML, `show` is a table keyed by field name. Without `title` and `show`, the page chooses the fields.
    """

    title: str | None = Field(
        default=None,
        description="Items: the field that names them for people.",
        json_schema_extra={"metavar": "COLUMN", "names": ""},
    )
    show: Annotated[dict[str, Shown], BeforeValidator(_shown)] = Field(
        default={},
        description="Items: a field that people see, in the order given, with a label and a unit, such as "
        "price:Price:EUR; repeatable.",
        json_schema_extra={"metavar": "COLUMN[:LABEL[:UNIT]]", "names": ""},
    )


NO_DISPLAY = DisplaySettings()
"""The settings that choose no fields."""


def is_url(place: str | Path) -> TypeGuard[str]:
    """Tell whether a place is a URL and not a path."""
    return isinstance(place, str) and re.match(_URL, place) is not None


def load_configuration(
    model: type[Model], path: Path | None = None, overrides: Mapping[str, object] | None = None
) -> Model:
    """Build `model` from the TOML file `path` (if any) and `overrides` ("split.kind": "time"), which win.

    Overrides that are None are ignored. Raises ConfigurationError naming setting, value and valid values.
    """
    settings = dict[str, Any]()
    try:
        if path is not None:
            settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"there is no configuration file {path}; check the path") from None
    except (ValueError, RecursionError, OSError) as error:
        raise ConfigurationError(f"{path} is not a TOML file: {error}") from None
    return override(model, settings, overrides, path)


def override(
    model: type[Model],
    settings: dict[str, Any],
    overrides: Mapping[str, object] | None = None,
    path: Path | None = None,
) -> Model:
    """Build `model` from `settings` of `path` as `load_configuration` does; `settings` are modified."""
    for name, value in (overrides or {}).items():
        if value is not None:
            _set(model, settings, name, value)
    changed = ", ".join(name for name, value in (overrides or {}).items() if value is not None)
    where = f"{path}{f' with {changed} overridden' if changed else ''}: " if path is not None else ""
    try:
        to_json(settings, fallback=str)  # prepared data and runs store settings as JSON
        return model.model_validate(settings)
    except ValidationError as error:
        raise ConfigurationError(where + "; ".join(_sentences(model, error.errors()))) from None
    except ValueError as error:
        raise ConfigurationError(
            f"{where}the settings can't be written as JSON: {error}; give texts in UTF-8, and sections of "
            "few levels"
        ) from None


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """Read `section.key=value` texts. Values are TOML, such as `5` or `{kind="time"}`, or bare words.

    Raises ConfigurationError for texts of another form.
    """
    overrides = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not all(key.strip().split(".")):
            raise ConfigurationError(f"--set {text!r} must look like section.key=value")
        if "\n" in text:
            raise ConfigurationError(f"--set {text!r} has to be one line; give --set once for each setting")
        try:
            overrides[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except (
            ValueError,
            RecursionError,
        ):  # not TOML, nested too deeply, or a number of thousands of digits
            overrides[key.strip()] = value.strip()
    return overrides


def _set(model: type[BaseModel], settings: dict[str, Any], name: str, value: object) -> None:
    """Set one setting by its dotted name. A text in place of a section is the kind of that section."""
    *sections, key = name.split(".")
    for count, section in enumerate(sections, 1):
        here = settings.setdefault(section, {})
        if isinstance(here, str) and _has_kinds(_follow(model, sections[:count])[0]):
            here = settings[section] = {"kind": here}
        if not isinstance(here, dict):
            whole = ".".join(sections[:count])
            raise ConfigurationError(
                f"there is no setting {name!r}, as {whole} = {shortened(here)} is no section of settings; "
                f"set the whole of {whole!r}"
            )
        settings = here
    settings[key] = value


def _sentences(model: type[BaseModel], errors: Iterable[ErrorDetails]) -> list[str]:
    """Return one sentence per setting; the errors of all types of a union form one sentence."""
    reasons: dict[str, list[str]] = {}
    for details in errors:
        setting, reason = _sentence(model, details)
        reasons.setdefault(setting, []).append(reason)
    return [setting + " or ".join(filter(None, alternatives)) for setting, alternatives in reasons.items()]


def _sentence(model: type[BaseModel], details: ErrorDetails) -> tuple[str, str]:
    """Return the statement on a setting, and the reason; a union may have several reasons."""
    location = [str(part) for part in details["loc"]]
    owner, names = _follow(model, location[:-1])
    if details["type"] == "extra_forbidden":
        name = ".".join([*names, location[-1]])
        return f"there is no setting {name!r}; known here: {', '.join(sorted(owner.model_fields))}", ""
    if details["type"] == "missing":
        return f"{'.'.join([*names, location[-1]])} has to be given", ""
    name = ".".join(_follow(model, location)[1])
    if details["type"] == "value_error":
        reason = details["msg"].removeprefix("Value error, ")
        # Most reasons name the contradictory settings.
        return reason if name.rpartition(".")[2] in reason else f"{name}: {reason}", ""
    if details["type"] == "union_tag_not_found":
        tag = details["ctx"]["discriminator"].strip("'")
        return f"{name}.{tag} has to be given, as it decides which settings {name} has", ""
    if details["type"] == "union_tag_invalid":
        context = details["ctx"]
        tag = context["discriminator"].strip("'")
        return (
            f"{name}.{tag} can't be {shortened(context['tag'])}: it is one of {context['expected_tags']}",
            "",
        )
    return f"{name} can't be {shortened(details['input'])}: ", _reason(model, location, details)


def _reason(model: type[BaseModel], location: list[str], details: ErrorDetails) -> str:
    """Return pydantic's message, in terms of TOML."""
    if details["type"] in ("model_type", "model_attributes_type"):
        section = _follow(model, location)[0]
        holding = "a kind" if _has_kinds(section) else f"some of {', '.join(sorted(section.model_fields))}"
        return f"it should be a section (a table) with {holding}"
    return f"{details['msg'][0].lower()}{details['msg'][1:]}"


def _follow(model: type[BaseModel], location: list[str]) -> tuple[type[BaseModel], list[str]]:
    """Return the innermost model at `location`, and the names of the settings on the way to it.

    The location of an error in a union also has the tag or the type, which are not names of settings.
    """
    names: list[str] = []
    options: list[type[BaseModel]] = [model]
    is_key = False
    for part in location:
        field = next((option.model_fields[part] for option in options if part in option.model_fields), None)
        if field is not None:
            names.append(part)
            options = section_models(field.annotation)
            is_key = any(get_origin(hint) is dict for hint in (field.annotation, *get_args(field.annotation)))
        elif part.isdecimal() or is_key:
            names.append(part)
            is_key = False
        else:
            options = [option for option in options if _has_tag(option, part)] or options
    return (options or [model])[0], names


def section_models(annotation: object) -> list[type[BaseModel]]:
    """Return the models among the types of a setting: the model of its section, or of each kind."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in section_models(argument)]


def _has_kinds(model: type[BaseModel]) -> bool:
    """Tell whether `kind` discriminates the model; `columns.kind` is the name of a column."""
    return "kind" in model.model_fields and get_origin(model.model_fields["kind"].annotation) is Literal


def _has_tag(model: type[BaseModel], tag: str) -> bool:
    return any(tag in get_args(field.annotation) for field in model.model_fields.values())
