"""The reference pages of the site: the public names with their signatures and docstrings.

Signatures are read from the sources, so that annotations stay as short as they were written. Names are looked
up in the imported modules: the methods of the client are made from functions then.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, is_typeddict

from pydantic import BaseModel

import turret
from turret import client
from turret.client import answers, version_answers
from turret.data.extras import kind_of
from turret.training import Estimator, GivenNegatives
from turret.training.losses.registry import LOSSES
from turret.training.samplers.registry import SAMPLERS

_LINE = 92  # characters of a signature before it has a line for each parameter
_SECTION = re.compile(r"^(Args|Draws|Raises|Returns|Yields):$", re.MULTILINE)
_TITLES = {"Args": "Arguments"}
# The classes that a user calls; the other ones are returned.
_BUILT = (client.Client, client.AsyncClient, Estimator)
_ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \w+)*): ", re.MULTILINE)
_DEFAULT = re.compile(r"^(\w+: .*?)=")
_PAGE = re.compile(r"\bdocs/(\w+)\.md\b")


def write_reference(folder: Path) -> dict[str, str]:
    """Write the pages into `folder`; return the titles by the names of their files."""
    pages = {
        "reference.md": ("turret", _of_turret()),
        "reference_client.md": ("turret.client", _of_client()),
        "reference_estimators.md": ("turret.training", _of_estimators()),
    }
    for name, (title, parts) in pages.items():
        (folder / name).write_text(f"# {title}\n\n" + "\n\n".join(parts) + "\n", "utf-8")
    return {name: title for name, (title, _) in pages.items()}


def _of_turret() -> Iterator[str]:
    yield "[Python](python.md) shows these calls one after the other."
    for name in sorted(turret.__all__):
        if name != "__version__":
            yield from described(f"turret.{name}", getattr(turret, name))


def _of_client() -> Iterator[str]:
    yield "[The client](client.md) and [serving](serving.md) show these calls."
    for name in client.__all__:
        yield from described(f"turret.client.{name}", getattr(client, name))
    for module in (answers, version_answers):
        for model in (value for value in vars(module).values() if inspect.isclass(value)):
            if model.__module__ == module.__name__ and issubclass(model, BaseModel) and model.model_fields:
                yield from described(f"{module.__name__}.{model.__name__}", model)


def _of_estimators() -> Iterator[str]:
    yield "[Losses and samplers](estimators.md) has the choice for each kind of data."
    yield from described("turret.training.Estimator", Estimator)
    yield from described("turret.training.GivenNegatives", GivenNegatives)
    for module, registry in (("losses", LOSSES), ("samplers", SAMPLERS)):
        settings: Iterable[type[BaseModel]] = registry.values()
        for kind in settings:
            fields = {name: field for name, field in kind.model_fields.items() if name != "kind"}
            given = [f"{name}={field.default!r}" for name, field in fields.items() if not field.is_required()]
            yield f"## turret.training.{module}.{kind_of(kind)}"
            yield fenced(laid_out(f"{module}.{kind_of(kind)}", given))
            yield as_markdown(kind)


def described(name: str, value: Any) -> Iterator[str]:
    """The heading, the signature and the docstring of a public name; of a class its public methods, too."""
    yield f"## {name}"
    short = re.sub(r"^turret\.(?:client\.(?:\w*answers\.)?|training\.)", "", name)
    is_class, is_error = inspect.isclass(value), inspect.isclass(value) and issubclass(value, Exception)
    if not is_class:
        yield fenced(signature(short, value))
    elif fields := fields_of(value):
        yield fenced("\n".join([f"class {short.split('.')[-1]}:", *(f"    {field}" for field in fields)]))
    elif value in _BUILT:
        yield fenced(signature(short, value.__init__))
    yield as_markdown(value)
    if value is Estimator:
        yield as_markdown(Estimator.__init__)
    if is_class and not is_error and not is_data(value) and value is not client.AsyncClient:
        for method in methods_of(value):
            yield f"### {value.__name__}.{method}"
            yield fenced(signature(method, getattr(value, method)))
            yield as_markdown(getattr(value, method))


def is_data(value: type) -> bool:
    """Whether a class has fields alone: its methods are no calls of a user."""
    return is_typeddict(value) or issubclass(value, BaseModel)


def fields_of(value: type) -> list[str]:
    """The annotated fields of a typed dictionary, a pydantic model or a dataclass, as written."""
    if not (is_data(value) or is_dataclass(value)):
        return []
    bodies = [_parsed(each).body for each in reversed(value.__mro__) if _is_ours(each)]
    if is_typeddict(value):
        bodies = [_parsed(value).body]
    fields = [ast.unparse(line) for body in bodies for line in body if isinstance(line, ast.AnnAssign)]
    return [field for field in fields if not field.startswith("_") and ": ClassVar" not in field]


def methods_of(value: type) -> list[str]:
    """The public methods and properties that the classes of the project give a class, in their order."""
    own = (each for each in value.__mro__ if _is_ours(each))
    names = dict.fromkeys(name for each in own for name in vars(each) if not name.startswith("_"))
    return [name for name in names if callable(getattr(value, name))]


def _is_ours(value: type) -> bool:
    return value.__module__.split(".")[0] == "turret"


def _parsed(value: Any) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]


def signature(name: str, function: Callable[..., Any]) -> str:
    """A function as it is called, with the annotations of its source and without `self`."""
    node = _parsed(inspect.unwrap(function))
    arguments = node.args
    if arguments.args and arguments.args[0].arg in ("self", "cls"):
        arguments.args.pop(0)
    given = [_DEFAULT.sub(r"\1 = ", part) for part in split(ast.unparse(arguments)) if part]
    returned = "" if node.returns is None or name[:1].isupper() else f" -> {plain(ast.unparse(node.returns))}"
    return laid_out(name, given, returned)


def plain(annotation: str) -> str:
    """The answer of a call of the client, without its wrapper, and names without their modules."""
    annotation = re.sub(r"^Call\[(.*)\]$", r"\1", annotation)
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", annotation).strip("'")


def split(arguments: str) -> list[str]:
    """The parameters of a list of them: a comma within brackets or quotes separates none."""
    parts, depth, begin = [], 0, 0
    for place, mark in enumerate(arguments):
        depth += (mark in "([{") - (mark in ")]}")
        if mark == "," and depth == 0:
            parts.append(arguments[begin:place].strip())
            begin = place + 1
    return [*parts, arguments[begin:].strip()]


def laid_out(name: str, arguments: Iterable[str], returned: str = "") -> str:
    """A call in one line, or with a line for each argument."""
    listed = list(arguments)
    line = f"{name}({', '.join(listed)}){returned}"
    if len(line) <= _LINE:
        return line
    return "\n".join([f"{name}(", *(f"    {argument}," for argument in listed), f"){returned}"])


def fenced(code: str) -> str:
    """A block of Python."""
    return f"```python\n{code}\n```"


def as_markdown(value: Any) -> str:
    """The docstring as Markdown: sections become lists, examples become code, and pages become links."""
    text = _PAGE.sub(r"[\1](\1.md)", inspect.getdoc(value) or "")
    head, *sections = _SECTION.split(text)
    parts = [_with_examples(head.strip())]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        entries = textwrap.dedent(body.split("\n\n")[0]).strip("\n")
        rest = "\n\n".join(body.split("\n\n")[1:])
        listed = _ENTRY.sub(r"- `\1`: ", re.sub(r"\n {2,}", " ", entries))
        parts += [f"**{_TITLES.get(title, title)}**", listed, _with_examples(textwrap.dedent(rest).strip())]
    return "\n\n".join(part for part in parts if part)


def _with_examples(text: str) -> str:
    """Examples for an interpreter, which end at an empty line, as blocks of code."""
    return re.sub(
        r"^( *>>> .*?)(?=\n\n|\Z)", lambda found: fenced(textwrap.dedent(found[1])), text, flags=re.M | re.S
    )
