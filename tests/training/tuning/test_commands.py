import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

from tests.training.tuning.studies import QUICK, search, stored, told
from turret.data.errors import DataError
from turret.data.prepared import PreparedData
from turret.training.errors import TrainingError
from turret.training.tuning.commands import study_table
from turret.training.tuning.plan import StudyRequest
from turret.training.tuning.study import StoredStudy, open_storage
from turret.training.tuning.trials import EPOCH, REASON, SECONDS

Output = pytest.CaptureFixture[str]


def test_a_study_ends_with_its_best_trials_and_where_they_are(
    shop: PreparedData, tmp_path: Path, capsys: Output
) -> None:
    """Each trial says what it tries and what came of it; a study with enough trials only shows them."""
    folder = tmp_path / "study"
    search(folder, shop, 2)
    lines = capsys.readouterr().out.splitlines()
    values = [f"{trial.values[0]:.4f}" for trial in stored(folder)]
    assert lines[0] == "trial 1 of 2: learning_rate 0.004, hidden [128]"
    assert lines[1].startswith(f"  ndcg@10 {values[0]} at epoch ")
    assert lines[1].endswith(" s (best)")
    assert lines[2].startswith("trial 2 of 2: learning_rate ")
    assert lines[4].startswith("2 trials, 0 stopped early")
    best = int(np.argmax(values)) + 1
    run = folder / "trials" / f"{best:04d}"
    assert lines[-1] == f"Best experiment: {folder / 'best.toml'}. Its run: {run}."
    search(folder, shop, 1)
    assert capsys.readouterr().out.splitlines() == [f"Continuing {folder} after 2 trials.", *lines[4:]]


def test_more_trials_go_on_where_it_stopped(shop: PreparedData, tmp_path: Path) -> None:
    """And try what one study of as many would have tried."""
    search(tmp_path / "whole", shop, 4)
    search(tmp_path / "parts", shop, 3)
    search(tmp_path / "parts", shop, 4, space=None, overrides=(), experiment=None)
    assert told(tmp_path / "parts") == told(tmp_path / "whole")
    best = [(tmp_path / name / "best.toml").read_text() for name in ("whole", "parts")]
    assert best[0] == best[1]


@pytest.mark.nightly
def test_a_study_that_was_killed_goes_on_as_if_nothing_had_happened(
    shop: PreparedData, tmp_path: Path
) -> None:
    """SIGKILL in the middle of the second trial, then the same command again."""
    search(tmp_path / "whole", shop, 4)
    options = [word for setting in QUICK for word in ("--set", setting)]
    words = ["tune", "youtubednn", "--trials", "4", "--data", shop.folder, "--study", tmp_path / "cut"]
    more = ["--space", tmp_path / "space.toml", *options]
    command = [sys.executable, "-m", "turret", *map(str, [*words, *more])]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while not (tmp_path / "cut" / "trials" / "0002" / "checkpoint.safetensors").exists():
        assert process.poll() is None, "the study ended before it could be killed"
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(stored(tmp_path / "cut")) == 1
    resumed = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "after 1 trials" in resumed.stdout
    assert resumed.stderr == ""
    assert told(tmp_path / "cut") == told(tmp_path / "whole")


def scrambled(shop: PreparedData, folder: Path, part: str) -> Path:
    """The shop with every event of one part exchanged for another item's, under the same fingerprint."""
    shutil.copytree(shop.folder, folder)
    items = np.load(folder / "items.npy", mmap_mode="r+")
    edges = np.column_stack([np.load(folder / "splits.npy"), np.load(folder / "offsets.npy")[1:]])
    first, last = (edges[:, 1], edges[:, 2]) if part == "test" else (edges[:, 0], edges[:, 1])
    for start, end in zip(first, last, strict=True):
        items[start:end] = (items[start:end] + 97) % len(shop.item_ids)
    items.flush()
    return folder


def test_the_test_part_is_never_looked_at(shop: PreparedData, tmp_path: Path) -> None:
    """Another test part makes no difference; the control is another validation part, which makes one."""
    search(tmp_path / "shop", shop, 3)
    search(tmp_path / "test", scrambled(shop, tmp_path / "other test", "test"), 3)
    assert told(tmp_path / "test") == told(tmp_path / "shop")
    search(tmp_path / "validation", scrambled(shop, tmp_path / "other", "validation"), 1)
    assert stored(tmp_path / "validation")[0].params == stored(tmp_path / "shop")[0].params
    assert stored(tmp_path / "validation")[0].values != stored(tmp_path / "shop")[0].values


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"experiment": "dsm"}, "dsm"),
        ({"overrides": ["training.epoch=1"]}, r"training\.epoch"),
        ({"space": "training.lr = { low = 1, high = 2 }"}, r"training\.lr"),
        ({"data": Path("nowhere")}, "nowhere"),
    ],
)
def test_a_study_that_can_not_begin_leaves_no_folder(
    given: dict[str, object], complaint: str, shop: PreparedData, tmp_path: Path
) -> None:
    with pytest.raises((TrainingError, DataError), match=complaint):
        search(tmp_path / "study", **{"data": shop, "count": 1, **given})  # type: ignore[arg-type]
    assert not (tmp_path / "study").exists()


def test_a_study_that_goes_on_keeps_its_settings(shop: PreparedData, tmp_path: Path) -> None:
    """Another experiment is refused, and the trials and the best experiment stay as they are."""
    search(tmp_path / "study", shop, 1)
    best = (tmp_path / "study" / "best.toml").read_text()
    with pytest.raises(TrainingError, match=r"patience was 4 and is 2.*--study"):
        search(tmp_path / "study", shop, 2, overrides=[*QUICK, "training.patience=2"])
    assert (tmp_path / "study" / "best.toml").read_text() == best
    assert len(stored(tmp_path / "study")) == 1
    assert tomllib.loads(best)["training"]["patience"] == 4


def test_two_at_once_are_refused(shop: PreparedData, tmp_path: Path) -> None:
    with (
        open_storage(tmp_path / "study"),
        pytest.raises(TrainingError, match="another `turret tune` is at work"),
    ):
        search(tmp_path / "study", shop, 1)


def test_every_option_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is typed is what is asked for."""
    from typer.testing import CliRunner

    import turret.cli
    from turret.training.tuning import commands

    asked: list[tuple[StudyRequest, int]] = []
    monkeypatch.setattr(commands, "tune", lambda *given: asked.append(given))
    words = "tune demo --trials 7 --data d --study s --space f.toml --set a=1 --set b=2"
    assert CliRunner().invoke(turret.cli.app, words.split()).exit_code == 0
    assert CliRunner().invoke(turret.cli.app, ["tune"]).exit_code == 0
    assert asked == [
        (StudyRequest(Path("s"), Path("d"), "demo", ("a=1", "b=2"), Path("f.toml")), 7),
        (StudyRequest(Path("var/study")), 30),
    ]


VALUES = (0.11, 0.17, None, 0.13, 0.19, 0.12, 0.15, 0.1)
SPACE = """
tower.scoring.temperature = { low = 0.05, high = 0.3, log = true }
tower.user.hidden = { choices = [[128], [256, 128]] }
objective.sampler = { choices = [{ kind = "unigram", alpha = 0.5, negatives = 64 }, "uniform"] }
"""


@pytest.fixture
def lines(shop: PreparedData, tmp_path: Path) -> list[str]:
    """The table of eight made-up trials, one stopped and one that could not be trained."""
    (tmp_path / "space.toml").write_text(SPACE)
    asked = StudyRequest(tmp_path / "study", shop.folder, None, QUICK, tmp_path / "space.toml")
    with open_storage(asked.folder) as storage:
        study = StoredStudy(storage, asked)
        for value in VALUES:
            trial = study.ask()
            if value is None:
                study.prune(trial)
            else:
                trial.set_user_attr(EPOCH, 3)
                trial.set_user_attr(SECONDS, 71.6)
                study.complete(trial, value)
        trial = study.ask()
        trial.set_user_attr(REASON, "no")
        study.prune(trial)
        return study_table(study).splitlines()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split("[│┃]", line)[1:-1]]


def test_the_five_best_stand_side_by_side(lines: list[str]) -> None:
    """By their places in the study, the best first, with what was tried in each."""
    rows = {cells(line)[0]: cells(line)[1:] for line in lines if cells(line)}
    assert rows["trial"] == ["5", "2", "7", "4", "6"]
    assert rows["ndcg@10"] == ["0.1900", "0.1700", "0.1500", "0.1300", "0.1200"]
    assert rows["epoch"] == ["3"] * 5
    assert rows["seconds"] == ["72"] * 5
    assert {"tower.scoring.temperature", "tower.user.hidden", "objective.sampler"} <= set(rows)
    assert all(0.05 <= float(value) <= 0.3 for value in rows["tower.scoring.temperature"])


def test_the_others_are_counted(lines: list[str]) -> None:
    counted = "9 trials, 1 stopped early, 1 failed. The best by the validation metric:"
    assert lines[0] == counted


def test_it_fits_on_a_page_also_with_long_settings(lines: list[str]) -> None:
    assert all(len(line) <= 100 for line in lines)
    assert "unigram" in "".join(lines)
