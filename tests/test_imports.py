"""Imports go one way: data -> tower -> training -> bundle -> service. Read off the source text."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("data", "tower", "training", "service")

# The table of the design: what a package may import of the project, and what it never imports of others.
MAY_IMPORT = {
    "data": {"data"},
    "tower": {"data", "tower"},
    "training": {"data", "tower", "training"},
    "service": {"data", "tower", "service"},
}
NEVER_IMPORTS = {
    "data": {"torch", "onnxruntime", "faiss", "fastapi", "uvicorn"},
    "tower": {"polars", "fastapi", "uvicorn"},
    "training": {"fastapi", "uvicorn"},
    "service": {"torch", "polars", "numba", "matplotlib", "optuna"},
}
# Files of one folder: more of them hide the concept that they share.
MOST_FILES = 15
# What only the image for training installs.
TRAINING_ONLY = ("torch", "polars", "numba", "matplotlib", "optuna")
# What the service takes from below: the frozen form of towers, and what names and describes ids.
SERVICE_TAKES = {
    "turret.tower.engines.circuit",
    "turret.data.entry_points",
    "turret.data.errors",
    "turret.data.features",
    "turret.data.files.locks",
    "turret.data.files.staging",
    "turret.data.progress",
    "turret.data.vocabulary",
    "turret.tower.bundle.bundle",
    "turret.tower.catalog.catalog",
    "turret.tower.catalog.columns",
    "turret.tower.catalog.masks",
    "turret.tower.format.checksums",
    "turret.tower.bundle.cost",
    "turret.tower.retrieval.diversity",
    "turret.tower.inference.encoder",
    "turret.tower.errors",
    "turret.tower.inference.feature_inputs",
    "turret.tower.catalog.filters",
    "turret.tower.bundle.golden",
    "turret.tower.engines.access",
    "turret.tower.engines.live",
    "turret.tower.index.index",
    "turret.tower.inference.item_encoder",
    "turret.tower.cli",
    "turret.tower.format.atomic_publish",
    "turret.tower.format.item_map",
    "turret.tower.format.listing",
    "turret.tower.format.manifest",
    "turret.tower.format.pointer",
    "turret.tower.format.safe_open",
    "turret.tower.retrieval.retriever",
    "turret.tower.format.snapshot",
    "turret.tower.times",
    "turret.tower.format.checksum_cache",
}


def _modules() -> dict[str, Path]:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    names = (".".join(("turret", *path.relative_to(ROOT).with_suffix("").parts)) for path in paths)
    return {name.removesuffix(".__init__"): path for name, path in zip(names, paths, strict=True)}


MODULES = _modules()


def _names(node: ast.AST) -> Iterator[str]:
    """What an import statement may load: `from data import errors` loads data, and perhaps data.errors."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.module is not None, f"line {node.lineno}: relative imports hide where they go"
        assert node.level == 0, f"line {node.lineno}: relative imports hide where they go"
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def imports_of(module: str) -> frozenset[str]:
    """Every name that `module` imports anywhere, in functions too; of the project only names of modules."""
    tree = ast.parse(MODULES[module].read_text("utf-8"))
    names = {name for node in ast.walk(tree) for name in _names(node)}
    return frozenset(name for name in names if _package(name) not in PACKAGES or name in MODULES)


def _package(name: str) -> str:
    """`data` of turret.data.errors, and the first name of all others."""
    first, *rest = name.split(".", 2)
    return rest[0] if first == "turret" and rest else first


def _modules_of(package: str) -> list[str]:
    return [name for name in MODULES if _package(name) == package]


def _reached(module: str) -> dict[str, str]:
    """The packages from outside that importing `module` loads, each with the module that asks for it."""
    found: dict[str, str] = {}
    waiting, known = [module], {module}
    while waiting:
        here = waiting.pop()
        for name in imports_of(here):
            if name not in MODULES:
                found[_package(name)] = here
            elif name not in known:
                known.add(name)
                waiting.append(name)
    return found


def test_a_module_imports_what_its_package_may_import() -> None:
    for module in MODULES:
        package = _package(module)
        others = {_package(name) for name in imports_of(module)}
        assert others & set(PACKAGES) <= MAY_IMPORT[package], module
        assert not others & NEVER_IMPORTS[package], module
        assert not others & {"turret", "cli"}, module


def test_the_service_takes_only_the_frozen_form_from_below() -> None:
    for module in _modules_of("service"):
        below = {name for name in imports_of(module) if _package(name) in ("data", "tower")}
        assert below - {"turret.data", "turret.tower"} <= SERVICE_TAKES, module


def test_what_is_served_reaches_nothing_of_training_by_any_way() -> None:
    """This decides which modules of `tower` may import torch: those that the service never reaches."""
    for module in (*SERVICE_TAKES, *_modules_of("service")):
        reached = _reached(module)
        assert not {name: reached[name] for name in TRAINING_ONLY if name in reached}, module


def test_no_tower_reaches_polars_by_any_way() -> None:
    for module in _modules_of("tower"):
        assert "polars" not in _reached(module), (module, _reached(module)["polars"])


def test_the_walk_sees_what_is_heavy_where_it_is() -> None:
    """Else the tests above would pass by seeing nothing."""
    assert "torch" in _reached("turret.tower.towers.model")
    assert "torch" in _reached("turret.training.trainer")
    assert "polars" in _reached("turret.data.synthetic.synthesis")
    assert "numba" in _reached("turret.training.samplers.kernel.quadratic")
    assert "matplotlib" in _reached("turret.training.report.commands")
    assert "optuna" in _reached("turret.training.tuning.commands")
    assert "optuna" not in _reached("turret.training.commands")


def _room(module: str) -> str:
    """The folder of a module. Modules directly in a package stand for themselves."""
    folder = module.rsplit(".", 1)[0]
    return module if folder.count(".") == 1 else folder


ROOMS = {name for name, path in MODULES.items() if path.name == "__init__.py"}


def test_no_module_and_no_room_imports_itself_by_way_of_others() -> None:
    """Nor for types alone, nor inside functions."""
    modules = MODULES.keys() - ROOMS
    graph = {module: set(imports_of(module)) & modules for module in modules}
    TopologicalSorter(graph).prepare()  # raises CycleError with the circle
    rooms: dict[str, set[str]] = {}
    for module, others in graph.items():
        rooms.setdefault(_room(module), set()).update({_room(name) for name in others} - {_room(module)})
    TopologicalSorter(rooms).prepare()


def test_a_room_says_what_it_is_and_which_of_its_modules_others_use() -> None:
    used: dict[str, set[str]] = {room: set() for room in ROOMS}
    for module in MODULES:
        for name in imports_of(module) & (MODULES.keys() - ROOMS):
            room = name.rpartition(".")[0]
            if room in ROOMS and room != module.rpartition(".")[0]:
                used[room].add(name)
    for room in ROOMS:
        tree = ast.parse(MODULES[room].read_text("utf-8"))
        assert ast.get_docstring(tree), room
        assignments = [node.value for node in tree.body if isinstance(node, ast.Assign)]
        face = {f"{room}.{name}" for value in assignments for name in ast.literal_eval(value)}
        assert used[room] <= face, f"a module outside {room} imports one that is not in its __all__"
        assert face <= MODULES.keys(), room
        files = [path for path in MODULES[room].parent.glob("*.py") if path.name != "__init__.py"]
        assert len(files) <= MOST_FILES, room


def test_help_loads_no_heavy_package() -> None:
    code = """
import sys
sys.argv = ["turret", "--help"]
import turret.cli
try:
    turret.cli.main()
except SystemExit as stop:
    assert not stop.code, stop.code
heavy = {"torch", "polars", "numba", "matplotlib", "optuna", "fastapi", "faiss", "onnxruntime"}
print("LOADED", *sorted(set(sys.modules) & heavy))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "Usage" in run.stdout
    assert run.stdout.splitlines()[-1].strip() == "LOADED"
