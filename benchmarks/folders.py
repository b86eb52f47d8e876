"""The imports of the packages, and the drawing of their folders in CONTRIBUTING.md."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
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


def folder_imports(package: str) -> dict[str, set[str]]:
    """The folders of a package, each with those that it imports, as first-level names."""
    found: dict[str, set[str]] = {}
    for module in MODULES.keys() - FOLDERS:
        parts = module.split(".")
        if parts[1] == package and len(parts) > 3:
            others = (name.split(".") for name in imports_of(module) if name not in FOLDERS)
            targets = {other[2] for other in others if other[1:2] == [package] and len(other) > 3}
            found.setdefault(parts[2], set()).update(targets - {parts[2]})
    return found


def without_shortcuts(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The transitive reduction of a graph without circles: no edge whose ends a longer path joins."""

    def reached(start: str) -> set[str]:
        return graph[start].union(*(reached(target) for target in graph[start]))

    return {
        folder: targets - set().union(*(reached(target) for target in targets))
        for folder, targets in graph.items()
    }


def drawing() -> str:
    """A Mermaid flowchart: an arrow leads from a folder to one that it imports."""
    lines = ["```mermaid", "flowchart TD"]
    for package in PACKAGES:
        graph = without_shortcuts(folder_imports(package))
        lines.append(f"  subgraph {package}")
        lines += [f"    {package}_{folder}[{folder}]" for folder in sorted(graph)]
        lines += [
            f"    {package}_{folder} --> {package}_{target}"
            for folder in sorted(graph)
            for target in sorted(graph[folder])
        ]
        lines.append("  end")
    lines += ["  service --> tower", "  training --> tower --> data", "```"]
    return "\n".join(lines) + "\n"
