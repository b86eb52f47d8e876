"""`turret activate --not-worse-than` as a command."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.activation.conftest import PublishTaste
from tests.support.command_line import environment, run, serving
from turret.activation.commands import FigureOptions, activate_checked
from turret.data.prepared import PreparedData
from turret.service.client.client import call
from turret.tower.format.pointer import current

# The image of the service lacks both.
LIGHT = """
import sys
sys.modules["polars"] = sys.modules["torch"] = None
from turret.cli import main
main()
"""


def light(*words: str | Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", LIGHT, *map(str, words)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.nightly
def test_a_worse_version_stays_out_and_a_better_one_comes_in(
    tmp_path: Path, publish_taste: PublishTaste, tastes: PreparedData
) -> None:
    publish_taste("first", noise=0.6)
    publish_taste("worse", noise=3.0)
    publish_taste("better")
    words = ("--not-worse-than", "live", "--data", tastes.folder)
    refused = light("activate", "worse", "--bundles", "bundles", *words, folder=tmp_path)
    assert (refused.returncode, refused.stdout) == (3, "")
    assert refused.stderr.startswith("turret: worse is worse than first: ndcg@10 is ")
    assert current(tmp_path / "bundles") == "first"
    accepted = light("activate", "better", "--bundles", "bundles", *words, folder=tmp_path)
    assert (accepted.returncode, accepted.stderr) == (0, "")
    assert accepted.stdout.startswith("better is not worse than first: ndcg@10 is ")
    assert current(tmp_path / "bundles") == "better"


@pytest.mark.nightly
def test_a_running_service_is_compared_with_what_it_serves(
    tmp_path: Path, publish_taste: PublishTaste, tastes: PreparedData
) -> None:
    publish_taste("first")
    publish_taste("worse", noise=3.0)
    publish_taste("same")
    words = ("--bundles", "bundles", "--not-worse-than", "live", "--data", tastes.folder)
    with serving(tmp_path / "bundles") as service:
        refused = run("activate", "worse", *words, "--url", service.admin, folder=tmp_path)
        assert refused.returncode == 3, refused.stderr
        assert call(service.url, "/v1/version")["version"] == "first"
        accepted = run("activate", "same", *words, "--url", service.admin, folder=tmp_path)
        assert accepted.returncode == 0, accepted.stderr
        assert call(service.url, "/v1/version")["version"] == "same"


def test_options_of_the_comparison_need_it() -> None:
    assert FigureOptions.of(None, None, None, None) is None
    options = FigureOptions.of("live", None, 0.0, None)
    assert options == FigureOptions("live", "ndcg@10", 0.0, Path("var/prepared"))


def test_without_another_live_version_nothing_is_compared(
    tmp_path: Path, publish_taste: PublishTaste, capsys: pytest.CaptureFixture[str]
) -> None:
    publish_taste("first")
    options = FigureOptions.of("live", None, None, tmp_path / "nothing")
    activate_checked("first", tmp_path / "bundles", None, False, options)
    assert capsys.readouterr().out.startswith("first is live already, so it is compared with none.")
    (tmp_path / "bundles" / "current").unlink()
    activate_checked("first", tmp_path / "bundles", None, False, options)
    assert capsys.readouterr().out.startswith("No version is live, so first is compared with none.")
    assert current(tmp_path / "bundles") == "first"
