import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import turret.cli
from turret.tower.bundle.golden import load
from turret.tower.commands import print_version
from turret.tower.errors import BundleError
from turret.tower.format.index_settings import IvfSettings, SearchParams
from turret.tower.format.listing import bundle_folder
from turret.tower.format.manifest import MeasuredRecall, read_manifest

RUN = CliRunner()


def test_the_command_makes_a_version_and_says_why_to_people_and_programs(bundles: Path) -> None:
    run = RUN.invoke(turret.cli.app, ["index", str(bundles), "--kind", "auto", "--version", "new"])
    assert run.exit_code == 0, run.output
    assert "60 items of 8 numbers" in run.stdout
    assert "Recall against exact search" in run.stdout
    assert "100 %" in run.stdout
    assert run.stdout.splitlines()[-1] == str(bundles / "new")
    load(bundles, "new")
    run = RUN.invoke(
        turret.cli.app, ["index", str(bundles / "v1"), "--kind", "ivf", "--recall", "0.5", "--json"]
    )
    assert run.exit_code == 0, run.output
    said = json.loads(run.stdout)
    assert said["bundle"] == str(bundles / "v1-ivf")
    assert said["index"]["kind"] == "ivf"
    assert said["index_choice"]["recall"] == 0.5
    assert {one["k"] for one in said["recall"]} == {10}


def test_a_folder_stands_for_its_current_bundle(bundles: Path, tmp_path: Path) -> None:
    assert bundle_folder(bundles) == bundles / "v1"
    assert bundle_folder(bundles / "v1") == bundles / "v1"
    for other in (tmp_path / "nothing", tmp_path):
        with pytest.raises(BundleError, match="DIR/VERSION"):
            bundle_folder(other)


def test_a_recall_that_no_activation_accepts_is_said(
    bundles: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = IvfSettings(efforts=(SearchParams(k=10, candidates=20),), lists=1)
    measured = (MeasuredRecall(k=10, selectivity=1.0, recall=0.91),)
    manifest = read_manifest(bundles / "v1").model_copy(update={"index": settings, "recall": measured})
    monkeypatch.setattr("turret.tower.commands.read_manifest", lambda _: manifest)
    print_version(bundles / "v1", as_json=True)
    said = capsys.readouterr().err
    assert "refuses a recall of 0.9100, unless TURRET_RECALL_MINIMUM (0.95) is lower" in said
    assert "index again with --recall 0.95" in said
