import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turret.training.checkpoint import load_progress
from turret.training.cli import app
from turret.training.errors import TrainingError
from turret.training.pages.commands import report_compare, report_run
from turret.training.run import CHECKPOINT, MODEL, REPORT_PAGE, Run, remove_run

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(evaluated: Run, tmp_path: Path) -> Path:
    return shutil.copytree(evaluated.folder, tmp_path / "run")


def test_the_page_is_written_into_the_run_and_its_path_is_printed(folder: Path, capsys: Capture) -> None:
    assert report_run(folder, None, "test", None, [], None) == folder / REPORT_PAGE
    assert capsys.readouterr().out == f"{folder / REPORT_PAGE}\n"
    assert (folder / REPORT_PAGE).read_text("utf-8").startswith("<!doctype html>")
    remove_run(folder)
    assert not (folder / REPORT_PAGE).exists()


def test_the_command_line_gives_every_option(folder: Path, other: Run, tmp_path: Path) -> None:
    one, two = str(tmp_path / "one.html"), tmp_path / "pages" / "two.html"
    options = ["-k", "20", "--part", "validation", "--baselines", "item_knn", "--output", one]
    done = CliRunner().invoke(app, ["report", "run", str(folder), *options])
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, one)
    written = Path(one).read_text("utf-8")
    assert "ndcg@20, validation part" in written
    assert "item-kNN" in written
    runs = [str(folder), str(other.folder)]
    done = CliRunner().invoke(app, ["report", "compare", *runs, "-k", "20", "--output", str(two)])
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, str(two))
    assert "ndcg@20 on the test part" in two.read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("run.json", None, "there is no run here; `turret train` makes one"),
        ("run.json", "{", "it can't be read"),
        (MODEL, None, "no model was saved yet"),
        (MODEL, "damaged", "train"),
        ("history.jsonl", "{}", "line 1: it can't be read"),
        ("metrics.json", "[", "it can't be read"),
    ],
)
def test_a_missing_or_damaged_run_is_said_in_a_sentence(
    folder: Path, name: str, content: str | None, words: str
) -> None:
    """And no page is left behind."""
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(TrainingError, match=words) as refused:
        report_run(folder, None, "test", None, [], None)
    assert str(folder) in str(refused.value)
    assert not (folder / REPORT_PAGE).exists()


def test_the_page_of_an_interrupted_run_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = load_progress(folder / CHECKPOINT)
    progress.finished = False
    monkeypatch.setattr(Run, "progress", lambda run: progress)
    (folder / "metrics.json").unlink()
    report_run(folder, None, "test", None, [], None)
    written = (folder / REPORT_PAGE).read_text("utf-8")
    assert "interrupted" in written
    assert "turret train --resume" in written


def test_an_output_that_is_no_page_is_refused_before_anything_is_measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Run, "open_data")
    with pytest.raises(TrainingError, match=r"must end in \.html"):
        report_run(folder, None, "test", None, [], folder / "report.pdf")
    with pytest.raises(TrainingError, match="this is a folder"):
        report_compare([folder, folder], None, "test", None, folder)
