"""A missing module is reported with the extra that installs it."""

import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.command_line import ROOT, commands, environment
from turret.data.extras import EXTRA_OF, install_hint

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
# Each example of --help, run where the modules of all extras are missing, in one process.
SCRIPT = """
import shlex, sys
from typer.testing import CliRunner
from turret.data.extras import EXTRA_OF

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRA_OF:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import turret.cli

for example in sys.stdin.read().splitlines():
    result = CliRunner().invoke(turret.cli.app, shlex.split(example))
    print(example.split("|")[0], result.exit_code, result.stderr.strip() or repr(result.exception), sep="\\t")
"""
# The extra of each command. Those left out run with the core alone.
NEEDS = {
    **dict.fromkeys(
        (
            *("data fetch", "data synth", "data prepare", "data append"),
            *("train", "tune", "evaluate", "compare", "export"),
        ),
        "train",
    ),
    **dict.fromkeys(("report samplers", "report run", "report compare"), "train"),
    # They need both: Polars, and a store.
    **dict.fromkeys(("history dump", "retrain"), "train"),
    **dict.fromkeys(("serve", "history load", "keys new", "keys list", "keys revoke"), "serve"),
}


def test_the_table_has_every_module_of_the_extras() -> None:
    """Development and audit tools are left out: no code of the package imports them."""
    modules: dict[str, set[str]] = {}
    for module, names in packages_distributions().items():
        for name in names:
            modules.setdefault(canonicalize_name(name), set()).add(module)
    for extra in ("train", "serve", "otel"):
        for requirement in map(Requirement, EXTRAS[extra]):
            importable = modules[canonicalize_name(requirement.name)]
            assert extra in {EXTRA_OF.get(module) for module in importable}, requirement


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("torch.nn", "pip install 'turret[train]'"),
        ("fastapi", "pip install 'turret[serve]'"),
        ("opentelemetry.sdk", "pip install 'turret[otel]'"),
    ],
)
def test_the_hint_is_a_command_to_paste(module: str, command: str) -> None:
    hint = install_hint(ModuleNotFoundError(name=module))
    assert hint is not None
    assert f"run: {command}" in hint
    assert len(shlex.split(command)) == 3


def test_a_module_of_no_extra_is_a_bug_and_keeps_its_traceback() -> None:
    assert install_hint(ModuleNotFoundError(name="turret.data.gone")) is None
    assert install_hint(ModuleNotFoundError()) is None


def test_a_bare_installation_names_the_extra_of_a_command(tmp_path: Path) -> None:
    examples = {
        name: re.findall(r"Example: `turret (.+?)(?: > \S+)?`$", command.callback.__doc__, re.M)[0]
        for name, command in commands().items()
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input="\n".join(examples.values()),
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    results = [line.split("\t") for line in done.stdout.splitlines()]
    needed = {
        name: re.findall(r"pip install 'turret\[(\w+)\]'", message)
        for name, (_, _, message) in zip(examples, results, strict=True)
    }
    assert needed == {name: [NEEDS[name]] if name in NEEDS else [] for name in examples}
    done_by = {name for name, result in zip(examples, results, strict=True) if result[1] == "0"}
    assert done_by == {"plan"}, "all others lack a package, or their data"
    failed = [result for result in results if result[1] == "1"]
    assert len(failed) == len(results) - 1
    assert all(result[2].startswith("turret: ") for result in failed)
