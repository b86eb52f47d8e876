"""Imports go one way: data -> tower -> training -> bundle -> service. Read off the source text."""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from pkgutil import resolve_name

import pytest

from tests.planted.fault import all_faults
from tests.support.command_line import environment
from tests.support.places import ROOT
from tests.support.trained import trained_shop
from turret.cli import ErrorHandlingGroup

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


# What only the image for training installs.
TRAINING_ONLY = {"torch", "polars", "numba", "matplotlib", "optuna"}
# What a package may import of the project, and never imports of others.
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
    "service": TRAINING_ONLY,
}
# Modules in a folder: more of them hide the concept that they share.
MOST_MODULES = 15


def reached(module: str) -> set[str]:
    """The packages from outside that importing `module` may load, by any way."""
    waiting, known = [module], {module}
    while waiting:
        new = imports_of(waiting.pop()) - known
        known |= new
        waiting += new & MODULES.keys()
    return {package_of(name) for name in known - MODULES.keys()}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_what_it_may(package: str) -> None:
    for module in (name for name in MODULES if package_of(name) == package):
        others = {package_of(name) for name in imports_of(module)}
        assert others & set(PACKAGES) <= MAY_IMPORT[package], module
        assert not others & (NEVER_IMPORTS[package] | {"turret", "cli"}), module


@pytest.mark.parametrize(("package", "never"), [("service", TRAINING_ONLY), ("tower", {"polars"})])
def test_a_package_reaches_nothing_heavier_by_way_of_others(package: str, never: set[str]) -> None:
    """Inside functions neither. So a module of `tower` may import torch if the service never reaches it."""
    for module in (name for name in MODULES if package_of(name) == package):
        assert not reached(module) & never, module


def test_the_walk_sees_what_is_heavy_where_it_is() -> None:
    """Else the tests above would pass by seeing nothing."""
    assert "torch" in reached("turret.tower.towers.model")
    assert "polars" in reached("turret.data.synthetic.synthesis")
    assert "optuna" in reached("turret.training.tuning.study")
    assert not reached("turret.training.commands") & {"optuna", "tensorboard"}


def test_no_module_and_no_folder_imports_itself_by_way_of_others() -> None:
    """Nor for types alone, nor inside functions. A module directly in a package stands for itself."""
    names = MODULES.keys() - FOLDERS
    modules = {module: imports_of(module) & names for module in names}
    folders: dict[str, set[str]] = {}
    for module, others in modules.items():
        here = folder_of(module)
        folders.setdefault(here, set()).update({folder_of(name) for name in others} - {here})
    for graph in (modules, folders):
        TopologicalSorter(graph).prepare()  # raises CycleError with the circle


def folder_of(module: str) -> str:
    folder = module.rpartition(".")[0]
    return module if folder.count(".") == 1 else folder


def test_a_folder_says_what_it_is_and_which_of_its_modules_others_use() -> None:
    used: dict[str, set[str]] = {folder: set() for folder in FOLDERS}
    for module in MODULES:
        for name in imports_of(module) & (MODULES.keys() - FOLDERS):
            folder = name.rpartition(".")[0]
            if folder in FOLDERS and folder != module.rpartition(".")[0]:
                used[folder].add(name)
    for folder in FOLDERS:
        tree = ast.parse(MODULES[folder].read_text("utf-8"))
        assert ast.get_docstring(tree), folder
        assignments = [node.value for node in tree.body if isinstance(node, ast.Assign)]
        face = {f"{folder}.{name}" for value in assignments for name in ast.literal_eval(value)}
        assert used[folder] <= face, f"a module outside {folder} imports one that is not in its __all__"
        assert face <= MODULES.keys(), folder
        assert len(list(MODULES[folder].parent.glob("*.py"))) <= MOST_MODULES + 1, folder


BARE = f"""
import sys
sys.modules |= dict.fromkeys({sorted(TRAINING_ONLY)})
from turret.cli import main
for line in sys.stdin:
    sys.argv = ["turret", *line.split()]
    try:
        main()
    except SystemExit as stop:
        loaded = [name for name in ("faiss", "fastapi", "numpy", "onnxruntime") if name in sys.modules]
        print("ENDED", stop.code, *loaded)
"""


@pytest.mark.process
def test_an_installation_without_training_runs_all_that_needs_none(tmp_path: Path) -> None:
    """Without the packages of training; the first two commands load none of the others either."""
    shop = trained_shop()
    shutil.copytree(shop.bundles, tmp_path / "bundles")
    lines = (
        "--help",
        "plan --users 200k --items 100k --events 10M",
        f"history load --data {shop.data.folder} --store sqlite:///history.sqlite",
        f"activate features --bundles bundles --not-worse-than live --data {shop.data.folder} --margin 1",
    )
    command, given = [sys.executable, "-c", BARE], "\n".join(lines)
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    ended = [line for line in done.stdout.splitlines() if line.startswith("ENDED")]
    assert [line.split()[1] for line in ended] == ["0"] * len(lines), done.stderr
    assert ended[:2] == ["ENDED 0"] * 2
    assert "events of" in done.stdout
    assert "features is not worse than ids" in done.stdout


LOADED = """
import gc, sys
from turret.__main__ import main
sys.argv = ["turret", *sys.argv[1:]]
try:
    main()
finally:
    print(sum(of_age["collections"] for of_age in gc.get_stats()), *sys.modules, file=sys.stderr)
"""
HEAVY = TRAINING_ONLY | {"faiss", "fastapi", "httpx2", "numpy", "onnxruntime", "pydantic", "rich"}
# The top of the command line has the option --json from one, and the address of a service from the other.
SHARED = {"turret.tower.cli", "turret.service.cli"}


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "packages", "commands"),
    [
        ("--help", {"rich"}, set(ErrorHandlingGroup.names.values()) - {None}),
        ("recommend --history 1 --url http://127.0.0.1:1", {"httpx2", "pydantic"}, SHARED),
        ("data describe PREPARED", {"numpy", "pydantic", "rich"}, SHARED | {"turret.data.cli"}),
    ],
)
def test_a_command_imports_what_it_needs(words: str, packages: set[str], commands: set[str]) -> None:
    """Of the heavy packages, and of the modules of other commands; most of a start is their import."""
    words = words.replace("PREPARED", str(trained_shop().data.folder))
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words.split()], env=environment(), capture_output=True, text=True
    )
    collections, *names = done.stderr.splitlines()[-1].split()
    loaded = set(names)
    assert int(collections) < 30  # by Python's own thresholds 80 to 120
    assert {name.partition(".")[0] for name in loaded} & HEAVY == packages
    assert loaded & set(ErrorHandlingGroup.names.values()) == commands


@pytest.mark.process
def test_the_client_loads_httpx_and_pydantic_alone() -> None:
    command = "import sys, turret.client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert {"httpx2", "pydantic"} <= loaded
    others = {"faiss", "fastapi", "numpy", "onnxruntime", "orjson", "rich", "typer"}
    assert not loaded & (TRAINING_ONLY | others)


def _touched() -> list[tuple[str, set[str]]]:
    """The example of each row of "Extension points", and the modules that the row names."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("| a new | for example |")[2]
    rows = [line.split("|")[2:4] for line in text.partition("\n\n")[0].splitlines()[2:]]
    return [(example.strip(" `"), set(re.findall(r"`([\w/]+\.py)`", modules))) for example, modules in rows]


@pytest.mark.parametrize(
    ("example", "modules"), _touched(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_new_one_touches_the_modules_that_the_list_names(example: str, modules: set[str]) -> None:
    naming = {
        path.relative_to(ROOT).as_posix()
        for package in (*PACKAGES, "turret")
        for path in (ROOT / package).rglob("*.py")
        if re.search(rf"\b{example}\b", path.read_text("utf-8"))
    }
    assert naming == modules


def test_the_list_has_a_row_for_each_kind() -> None:
    assert len(_touched()) == 8


def test_a_planted_fault_is_of_a_function_that_there_is() -> None:
    """Otherwise a rewrite would take the fault away from `make nightly`, which says so a day later."""
    for fault in all_faults().values():
        resolve_name(f"{fault.module}:{fault.path}")
