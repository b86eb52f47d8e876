"""Runs compared, and runs of several seeds as one."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from scipy import stats

from tests.support.places import check_snapshot
from turret.data.prepared import PreparedData
from turret.training import commands
from turret.training.checkpoint import Progress, save_checkpoint, save_tensors
from turret.training.commands import compare_command, evaluate_command, train_command
from turret.training.comparison.compare import compare, parse_seeds, seed_folder, training_summary
from turret.training.config.experiment import load_experiment
from turret.training.errors import TrainingError
from turret.training.loop.train import train
from turret.training.records import load_history
from turret.training.run import CHECKPOINT, MODEL, PER_USER, Run

Capture = pytest.CaptureFixture[str]


def made(
    folder: Path, users: list[str], values: list[float], overrides: list[str], fingerprint: str = "f"
) -> Path:
    """An evaluated run with NDCG@10 of these users, without any training."""
    run = Run(folder, load_experiment("youtubednn", overrides), folder, fingerprint)
    run.write()
    save_tensors(folder / MODEL, {"items": torch.zeros(5, 4), "bias": torch.zeros(3)})
    progress = Progress(epoch=7, step=70, seconds=12.5, finished=True)
    save_checkpoint(folder / CHECKPOINT, progress)
    hits = [float(value > 0) for value in values]
    table = {"user": users, "used_before": [user < "u3" for user in users], "towers ndcg@10": values}
    pl.DataFrame({**table, "towers hr@10": hits}).write_parquet(folder / PER_USER["test"])
    found = [("popularity", 0.1, "better"), ("last_used", 0.6, "worse"), ("ease", 0.4, "unclear")]
    verdict = [
        {"kind": "baseline", "sentence": f"{name}: {result}.", "figures": {"baseline_mean": mean}}
        for name, mean, result in found
    ]
    towers = {"ndcg@10": {"mean": float(np.mean(values))}, "hr@10": {"mean": float(np.mean(hits))}}
    counts = {"part": "test", "users": len(users), "relevant_items": len(users), "relevant_cold": 0}
    run.save_metrics("test", {**counts, "towers": towers, "verdict": verdict})
    return folder


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path, np.ndarray]:
    """Two runs with users in another order, of which three are in one alone; and the paired differences."""
    random = np.random.default_rng(0)
    users = [f"u{number}" for number in range(60)]
    first = np.round(random.random(60), 2)
    second = np.clip(first + random.normal(0.05, 0.1, 60), 0, 1)
    order = random.permutation(60)
    one = made(tmp_path / "one", [*users, "x"], [*first.tolist(), 1.0], [])
    two = made(
        tmp_path / "two",
        [users[place] for place in order] + ["y", "z"],
        [*second[order].tolist(), 0.0, 0.0],
        ["training.epochs=30", 'tower.user={kind="attentive"}'],
    )
    return one, two, second - first


def test_differences_are_paired_over_the_common_users(pair: tuple[Path, Path, np.ndarray]) -> None:
    """Far narrower than the intervals of the means, by Student's t."""
    one, two, differences = pair
    report = compare([one, two], "test")
    first, second = report["runs"]
    assert report["users"] == 60
    assert first["baseline"]["sentence"] == "last_used: worse."
    # u0 to u29, as texts before "u3".
    used = np.array([f"u{number}" < "u3" for number in range(60)])
    for name, members in (("item used before", used), ("item new to the user", ~used)):
        assert report["slices"][name]["users"] == members.sum()
        own = report["slices"][name]["runs"][1]["difference"]["ndcg@10"]["mean"]
        assert own == pytest.approx(differences[members].mean())
    assert first["difference"] is None
    found = second["difference"]["ndcg@10"]
    assert found["mean"] == pytest.approx(differences.mean())
    largest = max(map(abs, differences))
    padded = [*differences, largest, -largest]
    interval = stats.t.interval(0.95, 61, np.mean(padded), stats.sem(padded))
    assert (found["low"], found["high"]) == pytest.approx(interval, abs=1e-6)
    means = second["metrics"]["ndcg@10"]
    assert found["high"] - found["low"] < (means["high"] - means["low"]) / 2


def test_a_comparison_is_a_table_or_json(
    pair: tuple[Path, Path, np.ndarray], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, differences = pair
    monkeypatch.chdir(one.parent)
    runs = [Path(one.name), Path(two.name)]
    compare_command(runs, "test", "ndcg@10", as_json=False)
    check_snapshot("comparison.txt", capsys.readouterr().out)
    compare_command(runs, "test", "ndcg@10", as_json=True)
    shown = json.loads(capsys.readouterr().out, parse_float=lambda number: round(float(number), 9))
    assert shown["users"] == 60
    assert shown["runs"][1]["difference"]["ndcg@10"]["mean"] == pytest.approx(differences.mean())


def test_both_halves_of_an_answer_are_compared(tmp_path: Path, capsys: Capture) -> None:
    """Each over the users with such targets, beside the metric of all; or one of them as the metric."""
    runs = []
    for name, again in (("one", [0.25, 0.5, None]), ("two", [0.5, 0.5, None])):
        runs.append(made(tmp_path / name, ["a", "b", "c"], [0.1, 0.2, 0.3], []))
        path = runs[-1] / PER_USER["test"]
        halves = {"towers again ndcg@10": again, "towers new ndcg@10": [None, None, 0.125]}
        pl.read_parquet(path).with_columns(
            **{key: pl.Series(own) for key, own in halves.items()}
        ).write_parquet(path)
    compare_command(runs, "test", "ndcg@10", as_json=False)
    shown = capsys.readouterr().out
    assert re.search(r"again ndcg@10[ │]+0\.3750[ │]+0\.5000, \+0\.1250 \[", shown)
    assert re.search(r"new ndcg@10[ │]+0\.1250[ │]+0\.1250, ", shown)
    compare_command(runs, "test", "again ndcg@10", as_json=False)
    assert re.search(r"2[ │]+0\.5000 \[[^]]+\][ │]+\+0\.1250 \[", capsys.readouterr().out)


def test_runs_that_can_not_be_compared_are_refused(
    pair: tuple[Path, Path, np.ndarray], tmp_path: Path
) -> None:
    one, two, _ = pair
    with pytest.raises(TrainingError, match=r"one: its model is not evaluated on the validation part"):
        compare([one, two], "validation")
    with pytest.raises(TrainingError, match="have no user in common"):
        compare([two, made(tmp_path / "far", ["q"], [1.0], [])], "test")
    with pytest.raises(TrainingError, match=r"--metric ndcg@7: the runs have ndcg@10, hr@10 in common"):
        compare_command([two, two], "test", "ndcg@7", as_json=False)


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    """A folder of two seeds, whose figures of each user differ."""
    for seed, values in ((0, [0.1, 0.2, 0.6]), (3, [0.3, 0.4, 0.2])):
        made(tmp_path / "many" / f"seed-{seed}", ["a", "b", "c"], values, [f"training.seed={seed}"])
    return tmp_path / "many"


def test_several_seeds_are_compared_as_their_mean(seeds: Path, tmp_path: Path, capsys: Capture) -> None:
    """Of each user's figures, with the deviation of the seeds; a seed alone can be compared too."""
    one = made(tmp_path / "one", ["c", "b", "a"], [0.4, 0.4, 0.3], [])
    report = compare([one, seeds], "test")
    first, second = report["runs"]
    assert (first["seeds"], first["deviation"]) == (None, None)
    assert second["seeds"] == [0, 3]
    assert second["metrics"]["ndcg@10"]["mean"] == pytest.approx(0.3)
    assert second["deviation"]["ndcg@10"] == pytest.approx(0.0, abs=1e-12)
    # User by user -0.1, -0.1 and 0.
    difference = second["difference"]["ndcg@10"]
    assert difference["mean"] == pytest.approx(-0.2 / 3)
    # With 0.1 and -0.1 more: a mean of -0.04, an error of 0.04, and 2.776 of it to each side, up to 0.1.
    assert (difference["low"], difference["high"]) == pytest.approx((-0.1, 0.071), abs=0.001)
    assert report["settings"] == {"training.seed": [0, [0, 3]]}
    assert (second["seconds"], second["parameters"]) == (12.5, 23)
    compare_command([one, seeds], "test", "ndcg@10", as_json=False)
    assert "(mean of 2 seeds, standard deviation of ndcg@10 0.0000)" in capsys.readouterr().out
    assert compare([one, seeds / "seed-3"], "test")["runs"][1]["seeds"] is None


@pytest.mark.parametrize(
    ("text", "seeds"),
    [(" 7 ", (7,)), ("3 - 5,1, 4", (3, 4, 5, 1)), ("4294967295", (2**32 - 1,))],
)
def test_seeds_are_numbers_and_ranges(text: str, seeds: tuple[int, ...]) -> None:
    """Each counts once."""
    assert parse_seeds(text) == seeds


def test_commands_for_one_run_name_a_run_of_the_folder(tmp_path: Path) -> None:
    seed_folder(tmp_path, 2).mkdir()
    (seed_folder(tmp_path, 2) / "run.json").write_text("{}")
    with pytest.raises(TrainingError, match=r"holds the runs of several seeds; name one .*seed-2\."):
        Run.read(tmp_path)
    with pytest.raises(TrainingError, match="there are no runs of several seeds here; leave out --resume"):
        train_command(tmp_path / "none", resume=True, seeds="0-1")


QUICK = ["training.epochs=1", "training.batch_size=512", "training.device=cpu", "tower.dimension=8"]


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
    figures = training_summary(runs)["validation ndcg@10"]
    assert figures["values"] == values
    assert figures["mean"] == pytest.approx(sum(map(float, filter(None, values))) / 2)
    assert figures["deviation"] == pytest.approx(np.std(np.array(values, dtype=float), ddof=1))


def test_finished_seeds_are_not_trained_again_and_new_ones_are(
    trained: Path, shop: PreparedData, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the settings of the runs there, given again or left out."""
    begun: list[Run] = []
    monkeypatch.setattr(commands, "train", lambda run, *_, **__: begun.append(run))
    none: dict[str, Any] = {"experiment": None, "overrides": []}
    for given in (none, {}):
        train_seeds(shop, trained, "0-2", resume=True, **given)
    assert capsys.readouterr().out.count("trained already") == 4
    assert [run.folder.name for run in begun] == ["seed-1", "seed-1"]
    assert all(run.experiment == load_experiment("demo", [*QUICK, "training.seed=1"]) for run in begun)


def test_an_interrupted_seed_is_continued(
    shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    assert load_history(tmp_path / "run" / "seed-6")


@pytest.mark.parametrize(
    ("changed", "seeds", "words"),
    [
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
    """Of all metrics."""
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
    evaluate_command(trained, None, "test", False)
    assert " ± " in capsys.readouterr().out
