"""`turret data` as a command: options and files become settings, extras and entry points are named."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.command_line import commands, environment, output
from tests.support.places import ROOT
from turret.data.configuration import load_configuration, override, parse_overrides
from turret.data.errors import ConfigurationError
from turret.data.extras import EXTRA_OF, install_command, install_hint
from turret.data.kinds import Kind
from turret.data.preparing.options import given_settings
from turret.data.reading.schema import PrepareConfig, TimeSplit


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"delimiter": ";"}, {"format.delimiter": ";"}),
        ({"no_header": True}, {"format.has_header": False}),
        ({"null": ["x", "y"]}, {"format.nulls": ("x", "y")}),
        ({"kind_column": "a", "kind": ["buy"]}, {"columns.kind": "a", "kinds": {"buy": Kind()}}),
        ({"kind": ["x=target:2:consume=30"]}, {"kinds": {"x": Kind(weight=2, consume=30)}}),
        ({"in_file_order": True}, {"columns.in_file_order": True}),
        ({"min_weight": 2.5}, {"filters.min_weight": 2.5}),
        ({"item_text": ["a", "b"]}, {"item_features.text": ("a", "b")}),
        ({"user_number": ["a"]}, {"user_features.number": ("a",)}),
        ({"split": "time"}, {"split.kind": "time"}),
        ({"test_fraction": 0.3}, {"split.kind": "time", "split.test_fraction": 0.3}),
        ({"train": "a", "test": "b", "source": None}, {"split.kind": "files", "split.test": Path("b")}),
    ],
)
def test_options_become_settings_of_their_types(options: dict[str, Any], changed: dict[str, Any]) -> None:
    """Those of a kind of split tell that kind."""
    source = {"source": options.pop("source", "events.csv")}
    config: object = load_configuration(PrepareConfig, overrides={**source, **given_settings(options)})
    for setting, value in changed.items():
        found = config
        for name in setting.split("."):
            found = getattr(found, name)
        assert found == value, setting


def test_options_win_over_the_file_and_what_is_not_given_is_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "prepare.toml"
    file.write_text(
        'source = "log.csv"\n[columns]\ntime = "when"\n[split]\nkind = "time"\ntest_fraction = 0.2\n'
    )
    overrides = {"columns.time": "t", "split.test_fraction": None, "source": None}
    given = parse_overrides(["kinds={buy = {weight = 2.0}}", "kinds.view=signal"])
    config = load_configuration(PrepareConfig, file, {**overrides, **given})
    assert (config.source, config.columns.time) == (Path("log.csv"), "t")
    assert config.kinds == {"buy": Kind(weight=2), "view": Kind(role="signal")}
    assert isinstance(config.split, TimeSplit)
    assert config.split.test_fraction == 0.2


def test_dates_of_toml_are_moments(tmp_path: Path) -> None:
    path = tmp_path / "prepare.toml"
    split = "validation_from = 2024-05-01\ntest_from = 2024-05-08T12:30:00+02:00\n"
    path.write_text(f'source = "log.csv"\n[split]\nkind = "time"\n{split}')
    for config in (
        load_configuration(PrepareConfig, path),
        load_configuration(PrepareConfig, path, parse_overrides(["split.validation_from=2024-05-01"])),
    ):
        assert isinstance(config.split, TimeSplit)
        assert config.split.validation_from == "2024-05-01"
        assert config.split.test_from == "2024-05-08T12:30:00+02:00"


def test_settings_that_come_from_elsewhere_are_overridden_as_those_of_a_file() -> None:
    """And named with their source; a setting of the command line is one line."""
    settings = {"source": "log.csv", "columns": {"time": "when"}}
    config = override(PrepareConfig, settings, {"columns.user": "u"}, Path("stored.json"))
    assert (config.columns.user, config.columns.time) == ("u", "when")
    with pytest.raises(ConfigurationError, match=r"stored\.json with columns\.usr overridden: there is"):
        override(PrepareConfig, {"source": "log.csv"}, {"columns.usr": "u"}, Path("stored.json"))
    with pytest.raises(ConfigurationError, match="one line"):
        parse_overrides(["a=1\nb=2"])


def test_a_log_is_prepared_where_the_command_says_and_described(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("user,item,time\n1,a,1\n1,b,2\n1,c,3\n")
    done = output("data", "prepare", "events.csv", "--to", "there", folder=tmp_path)
    assert output("data", "describe", "there", folder=tmp_path) in done
    assert done.startswith("time: ")
    again = output("data", "prepare", "events.csv", "--to", "there", "--overwrite", folder=tmp_path)
    assert again == done


EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
# Each example of --help, run where the modules of all extras are missing, in one process.
SCRIPT = """
import shlex, sys
from typer.testing import CliRunner
from turret.data.extras import EXTRA_OF

class Missing:
    def find_spec(self, name, path=None, target=None):
        if EXTRA_OF.get(name.partition(".")[0], "bundle") not in ("bundle", "client"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import turret.cli

for example in sys.stdin.read().splitlines():
    result = CliRunner().invoke(turret.cli.app, shlex.split(example))
    print(example.split("|")[0], result.exit_code, result.stderr.strip() or repr(result.exception), sep="\\t")
"""
# The extra of each command. Those left out run with the extra `bundle` alone.
NEEDS = {
    **dict.fromkeys((f"data {name}" for name in ("fetch", "synth", "prepare", "append")), "train"),
    **dict.fromkeys((f"report {name}" for name in ("samplers", "run", "compare")), "train"),
    **dict.fromkeys(("train", "tune", "evaluate", "compare", "export"), "train"),
    # They need both: Polars, and a store or the ranking of the service.
    **dict.fromkeys(("demo", "history dump", "retrain", "vectors", "outcomes"), "train"),
    **dict.fromkeys(("score", "serve", "history load", "keys new", "keys list", "keys revoke"), "serve"),
}


def test_the_table_has_every_module_of_the_extras() -> None:
    """Development and audit tools are left out: no code of the package imports them."""
    modules: dict[str, set[str]] = {}
    for module, names in packages_distributions().items():
        for name in names:
            modules.setdefault(canonicalize_name(name), set()).add(module)
    for extra in ("client", "bundle", "train", "serve", "otel"):
        for requirement in map(Requirement, EXTRAS[extra]):
            if requirement.name == "turret":
                continue
            importable = modules[canonicalize_name(requirement.name)]
            assert extra in {EXTRA_OF.get(module) for module in importable}, requirement


def test_the_hint_is_a_command_to_paste_and_a_bug_keeps_its_traceback() -> None:
    for module, extra in {"torch.nn": "train", "fastapi": "serve", "opentelemetry.sdk": "otel"}.items():
        hint = install_hint(ModuleNotFoundError(name=module))
        assert hint is not None
        assert re.search(rf"run: pip install .*\[{extra}\]'", hint)
    assert install_hint(ModuleNotFoundError(name="turret.data.gone")) is None
    assert install_hint(ModuleNotFoundError()) is None


@pytest.mark.parametrize(
    ("folder", "info", "shown"),
    [
        ("a clone", {"dir_info": {"editable": True}}, "--editable '{clone}[s3]'"),
        ("a clone", {"dir_info": {}}, "'{clone}[s3]'"),
        ("gone", {"dir_info": {}}, "'turret[s3]'"),
        ("a clone", {"archive_info": {}}, "'turret[s3]'"),
    ],
)
def test_an_extra_comes_from_the_clone_of_the_installation(
    folder: str, info: dict[str, Any], shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a clone").mkdir()
    (tmp_path / "a clone" / "pyproject.toml").touch()
    origin = json.dumps({"url": (tmp_path / folder).as_uri(), **info})
    installed = SimpleNamespace(read_text=lambda name: origin)
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: installed)
    assert install_command("s3") == f"pip install {shown.format(clone=tmp_path / folder)}"


@pytest.mark.process
def test_a_bare_installation_names_the_extra_of_a_command(tmp_path: Path) -> None:
    """The one process that shows which packages a command needs."""
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
        name: re.findall(r"pip install .*\[(\w+)\]'", message)
        for name, (_, _, message) in zip(examples, results, strict=True)
    }
    assert needed == {name: [NEEDS[name]] if name in NEEDS else [] for name in examples}
    done_by = {name for name, result in zip(examples, results, strict=True) if result[1] == "0"}
    assert done_by == {"plan"}, "all others lack a package, or their data"
    assert all(result[2].startswith("turret: ") for result in results if result[1] != "0")
