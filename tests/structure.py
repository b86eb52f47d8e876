"""The drawing of the folders in CONTRIBUTING.md, from the imports. `python -m tests.structure` writes it."""

from tests.support.places import ROOT
from tests.test_imports import MODULES, PACKAGES, ROOMS, imports_of

PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- python -m tests.structure -->\n", "<!-- end -->\n"


def folder_imports(package: str) -> dict[str, set[str]]:
    """The folders of a package, each with those that it imports, as first-level names."""
    found: dict[str, set[str]] = {}
    for module in MODULES.keys() - ROOMS:
        parts = module.split(".")
        if parts[1] == package and len(parts) > 3:
            others = (name.split(".") for name in imports_of(module) if name not in ROOMS)
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


def drawn(page: str) -> str:
    """The text of the page with the drawing between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n" + drawing() + "\n" + END + after


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
