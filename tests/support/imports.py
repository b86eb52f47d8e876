"""The imports of the packages, read off the source text."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.places import ROOT

PACKAGES = ("data", "tower", "training", "service")


def _modules() -> dict[str, Path]:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    names = (".".join(("turret", *path.relative_to(ROOT).with_suffix("").parts)) for path in paths)
    return {name.removesuffix(".__init__"): path for name, path in zip(names, paths, strict=True)}


# The file of each module and each folder, and the folders alone.
MODULES = _modules()
FOLDERS = {name for name, path in MODULES.items() if path.name == "__init__.py"}


@cache
def imports_of(module: str) -> frozenset[str]:
    """Every name that `module` imports anywhere, in functions too; of the project only names of modules."""
    tree = ast.parse(MODULES[module].read_text("utf-8"))
    names = {name for node in ast.walk(tree) for name in _names(node)}
    return frozenset(name for name in names if package_of(name) not in PACKAGES or name in MODULES)


def _names(node: ast.AST) -> Iterator[str]:
    """The names that an import may load: `from data import errors` loads data, and perhaps data.errors."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        if node.module is None or node.level:
            raise ValueError(f"line {node.lineno}: relative imports hide where they go")
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def package_of(name: str) -> str:
    """`data` of turret.data.errors, and the first name of all others."""
    first, *rest = name.split(".", 2)
    return rest[0] if first == "turret" and rest else first
