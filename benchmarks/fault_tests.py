"""The tests of each row of docs/reliability.md: those marked `@pytest.mark.fault(NUMBER)`."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class FaultTest(NamedTuple):
    """A test that exposes the service to a fault, and whether only `make nightly` runs it."""

    name: str
    path: Path
    is_nightly: bool

    def link(self) -> str:
        """The cell's part in Markdown."""
        return f"[`{self.name}`](../{self.path.as_posix()})" + " *nightly*" * self.is_nightly


def fault_tests() -> dict[int, list[FaultTest]]:
    """The tests by the number of the fault, in the order of their files."""
    found: dict[int, list[FaultTest]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if "mark.fault(" in source:
            for test, marks in _marked(ast.parse(source), []):
                is_nightly = any(ast.unparse(mark).startswith("pytest.mark.nightly") for mark in marks)
                for number in sorted(set(_numbers(marks))):
                    found[number].append(FaultTest(test, path.relative_to(ROOT), is_nightly))
    return dict(found)


def _marked(node: ast.Module | ast.ClassDef, outer: list[ast.expr]) -> Iterator[tuple[str, list[ast.expr]]]:
    """Each test of a module or a class with its marks and those of what it is in."""
    marks = [*outer, *_module_marks(node)]
    for inner in node.body:
        if isinstance(inner, ast.ClassDef):
            yield from _marked(inner, [*marks, *inner.decorator_list])
        elif isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and inner.name.startswith("test_"):
            yield inner.name, [*marks, *inner.decorator_list]


def _module_marks(node: ast.Module | ast.ClassDef) -> Iterator[ast.expr]:
    for inner in node.body:
        if isinstance(inner, ast.Assign) and ast.unparse(inner.targets[0]) == "pytestmark":
            yield from inner.value.elts if isinstance(inner.value, ast.List) else [inner.value]


def _numbers(marks: Iterable[ast.expr]) -> Iterator[int]:
    for mark in marks:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.fault":
            yield from (ast.literal_eval(number) for number in mark.args)
