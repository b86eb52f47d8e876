"""Training and evaluation of several seeds."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turret.data.prepared import PreparedData
from turret.training import commands
from turret.training.commands import evaluate_command, train_command
from turret.training.comparison.seeds import parse_seeds, seed_folder, training_summary
from turret.training.config.experiment import load_experiment
from turret.training.errors import TrainingError
from turret.training.records.history import load_history
from turret.training.run import MODEL, Run
from turret.training.trainer import train


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("0-4", (0, 1, 2, 3, 4)),
        ("0,1,5", (0, 1, 5)),
        (" 7 ", (7,)),
        ("3 - 5,1, 4", (3, 4, 5, 1)),
        ("4294967295", (2**32 - 1,)),
    ],
)
def test_seeds_are_numbers_and_ranges(text: str, seeds: tuple[int, ...]) -> None:
    """Each counts once."""
    assert parse_seeds(text) == seeds


def test_commands_for_one_run_name_a_run_of_the_folder(tmp_path: Path) -> None:
    seed_folder(tmp_path, 2).mkdir()
    (seed_folder(tmp_path, 2) / "run.json").write_text("{}")
    with pytest.raises(TrainingError, match=r"holds the runs of several seeds; name one .*seed-2\."):
        Run.read(tmp_path)


QUICK = ["training.epochs=1", "training.batch_size=512", "training.device=cpu", "tower.dimension=8"]
Capture = pytest.CaptureFixture[str]


def train_seeds(shop: PreparedData, folder: Path, seeds: str | None, **changed: Any) -> None:
    train_command(
        folder, **{"data": shop.folder, "experiment": "demo", "overrides": QUICK, **changed}, seeds=seeds
    )


@pytest.fixture(scope="module")
def trained(shop: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seeds 0 and 2, trained for an epoch. Only metrics may be written to."""
    folder = tmp_path_factory.mktemp("seeds") / "run"
    train_seeds(shop, folder, "0,2")
    return folder


def test_each_seed_has_a_run_and_the_summary_their_mean_and_deviation(trained: Path) -> None:
    values, runs = [], [Run.read(seed_folder(trained, seed)) for seed in (0, 2)]
    for seed, run in zip((0, 2), runs, strict=True):
        assert run.experiment == load_experiment("demo", [*QUICK, f"training.seed={seed}"])
        progress = run.progress()
        assert progress is not None
        values.append(progress.best)
    summary = training_summary(runs)
    figures = summary["validation ndcg@10"]
    assert figures["values"] == values
    assert figures["mean"] == pytest.approx(sum(map(float, filter(None, values))) / 2)
    assert figures["deviation"] == pytest.approx(np.std(np.array(values, dtype=float), ddof=1))
    assert set(summary) == {"validation ndcg@10", "epochs", "seconds"}


def test_finished_seeds_are_not_trained_again_and_new_ones_are(
    trained: Path, shop: PreparedData, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the settings of the runs there, given again or left out."""
    begun: list[Run] = []
    monkeypatch.setattr(commands, "train", lambda run, *_, **__: begun.append(run))
    none: dict[str, Any] = {"experiment": None, "overrides": []}
    for given in (none, {}):
        train_seeds(shop, trained, "0-2", resume=True, **given)
    shown = capsys.readouterr().out
    assert "seed 0 (1 of 3): trained already" in shown
    assert "seed 2 (2 of 3): trained already" in shown
    assert [run.folder.name for run in begun] == ["seed-1", "seed-1"]
    assert all(run.experiment == load_experiment("demo", [*QUICK, "training.seed=1"]) for run in begun)


def test_an_interrupted_seed_is_continued(
    shop: PreparedData, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--resume` without `--seeds` continues those that were begun."""
    real, calls = train, list[str]()

    def interrupted(run: Run, *given: Any, **named: Any) -> Any:
        calls.append(run.folder.name)
        if len(calls) == 2:
            run.write()
            raise KeyboardInterrupt
        return real(run, *given, **named)

    monkeypatch.setattr(commands, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_seeds(shop, tmp_path / "run", "5-6")
    model = (tmp_path / "run" / "seed-5" / MODEL).read_bytes()
    train_command(tmp_path / "run", resume=True)
    assert calls == ["seed-5", "seed-6", "seed-6"]
    assert (tmp_path / "run" / "seed-5" / MODEL).read_bytes() == model
    shown = capsys.readouterr().out
    assert "the runs are in" in shown
    assert "next: `turret report run" in shown
    assert load_history(tmp_path / "run" / "seed-6")


@pytest.mark.parametrize(
    ("changed", "seeds", "words"),
    [
        ({}, "0-3", "holds the runs of several seeds; continue them with --resume"),
        ({}, None, "holds the runs of several seeds; continue them with --resume"),
        ({"resume": True, "overwrite": True}, "0-3", "give one of the two"),
        ({"resume": True, "overrides": [*QUICK, "training.seed=3"]}, "0-3", "leave out --set training.seed"),
        ({"resume": True, "overrides": [*QUICK, "training.epochs=3"]}, "0-3", "begun with other settings"),
        ({"resume": True}, "x", "is no seed and no range"),
    ],
)
def test_a_folder_of_seeds_is_neither_replaced_nor_continued_unasked(
    changed: dict[str, Any], seeds: str | None, words: str, trained: Path, shop: PreparedData
) -> None:
    before = {path.name for path in trained.iterdir()}
    with pytest.raises(TrainingError, match=words):
        train_seeds(shop, trained, seeds, **changed)
    assert {path.name for path in trained.iterdir()} == before


def test_an_evaluation_has_mean_deviation_and_a_verdict(trained: Path, capsys: Capture) -> None:
    """Of all metrics. Evaluates two runs twice: seconds."""
    evaluate_command(trained, None, "test", True, ["co_occurrence"])
    report = json.loads(capsys.readouterr().out)
    own = [
        Run.read(trained / f"seed-{seed}").metrics()["test"]["towers"]["ndcg@10"]["mean"] for seed in (0, 2)
    ]
    towers = report["towers"]["ndcg@10"]
    assert towers["values"] == own
    assert towers["mean"] == pytest.approx(np.mean(own))
    assert towers["low"] <= towers["mean"] <= towers["high"]
    assert report["popularity"]["ndcg@10"]["deviation"] == 0.0
    assert list(report["differences"]) == ["popularity", "co_occurrence"]
    paired = report["differences"]["popularity"]["ndcg@10"]["mean"]
    assert paired == pytest.approx(np.mean(own) - report["popularity"]["ndcg@10"]["mean"])
    kinds = [one["kind"] for one in report["verdict"]]
    assert kinds[:2] == ["baseline", "baseline"]
    assert kinds.count("unread_features") == 1
    evaluate_command(trained, None, "test", False)
    assert " ± " in capsys.readouterr().out
