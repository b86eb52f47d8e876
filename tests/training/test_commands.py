"""`turret train`, `evaluate` and `export`: what they print, keep, replace and refuse."""

import json
import re
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.support.trained import trained_shop
from turret.data.prepared import PreparedData
from turret.training.auto.choice import RULE_AHEAD
from turret.training.begin import begin_run
from turret.training.commands import evaluate_command, train_command
from turret.training.config.experiment import load_experiment, named_settings
from turret.training.errors import TrainingError
from turret.training.evaluation.per_user import load_per_user
from turret.training.run import MODEL, PER_USER, Run

QUICK = ["training.epochs=1", "training.batch_size=512", "training.device=cpu", "tower.dimension=8"]
Capture = pytest.CaptureFixture[str]


def train(
    data: Path | None, experiment: str | None, folder: Path, overrides: list[str], **named: Any
) -> None:
    train_command(folder, data, experiment, overrides, **named)


@pytest.fixture(scope="module")
def trained(shop: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one epoch on the shop. Only its metrics may be written to."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    train(shop.folder, None, folder, QUICK)
    return folder


def test_a_run_that_is_there_is_neither_gone_on_with_nor_replaced_unasked(
    trained: Path, shop: PreparedData
) -> None:
    before = (trained / MODEL).read_bytes()
    with pytest.raises(TrainingError, match="a run here already"):
        train(shop.folder, None, trained, [*QUICK, "training.seed=5"])
    assert (trained / MODEL).read_bytes() == before


def test_a_replaced_run_leaves_nothing_but_what_was_not_its_own(shop: PreparedData, tmp_path: Path) -> None:
    train(shop.folder, None, tmp_path, QUICK)
    (tmp_path / "metrics.json").write_text('{"test": {}}')
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / PER_USER["test"]).write_text("of the model that is replaced")
    events = {path.name for path in (tmp_path / "tensorboard").iterdir()}
    train(shop.folder, None, tmp_path, [*QUICK, "training.seed=5"], overwrite=True)
    assert Run.read(tmp_path).experiment.training.seed == 5
    assert Run.read(tmp_path).metrics() == {}
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not (tmp_path / PER_USER["test"]).exists()
    assert not events & {path.name for path in (tmp_path / "tensorboard").iterdir()}


@pytest.mark.parametrize("wrong", [{"overrides": ["training.epoch=1"]}, {"experiment": "dsm"}, {"data": "x"}])
def test_what_can_not_begin_replaces_nothing(
    wrong: dict[str, Any], trained: Path, shop: PreparedData
) -> None:
    asked = {"data": shop.folder, "experiment": None, "folder": trained, "overrides": QUICK, **wrong}
    with pytest.raises(Exception, match=r"training\.epoch|dsm|x is not"):
        train(**{**asked, "data": Path(asked["data"])}, overwrite=True)
    assert (trained / MODEL).is_file()


@pytest.mark.parametrize(("experiment", "overrides"), [(None, []), ("youtubednn", QUICK)])
def test_a_run_goes_on_with_its_own_settings_and_data(
    experiment: str | None, overrides: list[str], trained: Path, capsys: Capture
) -> None:
    """Whether they are left out or given again, and from wherever its data was."""
    train(None, experiment, trained, overrides, resume=True)
    assert "Resuming at step" in capsys.readouterr().out
    assert Run.read(trained).experiment == load_experiment("youtubednn", QUICK)


def test_data_that_moved_is_named(trained: Path, shop: PreparedData, tmp_path: Path) -> None:
    stored = json.loads((trained / "run.json").read_text())
    moved = tmp_path / "run"
    moved.mkdir()
    (moved / "run.json").write_text(json.dumps({**stored, "data": str(tmp_path / "gone")}))
    (moved / MODEL).write_bytes((trained / MODEL).read_bytes())
    with pytest.raises(Exception, match="gone"):
        evaluate_command(moved, None, "test", as_json=True)
    evaluate_command(moved, shop.folder, "test", as_json=True)


def test_a_run_of_several_processes_that_has_not_begun_begins_with_resume(
    shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchrun starts the same command again; alone, a run that is not there is a mistake."""
    with pytest.raises(TrainingError, match="there is no run here"):
        begin_run(tmp_path, shop.folder, None, QUICK, resume=True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    run, _ = begin_run(tmp_path, shop.folder, None, QUICK, resume=True)
    run.write()
    assert begin_run(tmp_path, None, None, QUICK, resume=True)[0] == Run.read(tmp_path)


ONE_EPOCH = ["training.epochs=1", "training.since=2022-06-01"]


def test_a_warm_start_takes_the_experiment_of_its_bundle(tmp_path: Path, capsys: Capture) -> None:
    """With what is overridden; a folder stands for its current bundle. That there are few steps is said."""
    shop, first = trained_shop(), trained_shop().bundles / "ids"
    train(shop.data.folder, None, tmp_path / "run", ONE_EPOCH, origin=shop.bundles)
    run = Run.read(tmp_path / "run")
    assert run.origin == first
    begun = {**named_settings(shop.run().experiment), "training.epochs": 1, "training.since": "2022-06-01"}
    assert named_settings(run.experiment) == begun
    told, few = capsys.readouterr().out.splitlines()[:2]
    assert told.startswith(f"Warm start from {first}: {len(shop.data.item_ids)} items keep their vectors")
    assert re.match(r"The run has only \d+ steps: training\.batch_size = 1024 is large for \d", few)


def test_a_warm_start_has_nothing_to_choose_and_other_towers_are_refused(tmp_path: Path) -> None:
    """A named experiment wins over that of the bundle, if its towers are those; else nothing is written."""
    shop = trained_shop()
    with pytest.raises(TrainingError, match="--experiment auto has nothing to choose"):
        train(shop.data.folder, "auto", tmp_path / "run", [], origin=shop.bundles)
    with pytest.raises(TrainingError, match=r"tower\.user\.kind = 'transformer', but the bundle"):
        train(shop.data.folder, "transformer", tmp_path / "run", ["tower.dimension=32"], origin=shop.bundles)
    assert not (tmp_path / "run").exists()


def test_a_warm_run_goes_on_as_it_was_begun(
    trained: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its settings and its bundle are given again or left out, but from no other bundle.

    That no epoch was better than the bundle is said.
    """
    shop, first = trained_shop(), trained_shop().bundles / "ids"
    values = iter((0.5, 0.4))
    monkeypatch.setattr("turret.training.loop.trainer.metric_of", lambda *_: next(values))
    train(shop.data.folder, None, tmp_path / "run", ONE_EPOCH, origin=shop.bundles)
    last = capsys.readouterr().out.splitlines()[-2]
    assert last.startswith("best ndcg@10 0.5000, epoch 0 (none was better than the bundle); the run is in ")
    for overrides, origin in (([], None), (ONE_EPOCH, shop.bundles), ([], first)):
        train(None, None, tmp_path / "run", overrides, resume=True, origin=origin)
        assert "Resuming at step" in capsys.readouterr().out
    with pytest.raises(TrainingError, match="begun with other settings"):
        train(None, None, tmp_path / "run", ["training.seed=4"], resume=True)
    for folder, begun in ((trained, "without --from"), (tmp_path / "run", f"from {first}")):
        with pytest.raises(TrainingError, match=f"was begun {begun}; leave --from out"):
            train(None, None, folder, [], resume=True, origin=tmp_path / "elsewhere")


def test_an_evaluation_is_kept_with_the_run_and_ends_with_a_verdict_about_each_baseline(
    trained: Path, capsys: Capture
) -> None:
    """In the table for people, in JSON, and in the run's folder with the figures of each user."""
    evaluate_command(trained, None, "validation", as_json=True)
    validation = json.loads(capsys.readouterr().out)
    evaluate_command(trained, None, "test", True, ["ease", "item_knn"])
    report = json.loads(capsys.readouterr().out)
    evaluate_command(trained, None, "test", False, ["ease", "item_knn"])
    table, _, sentences = capsys.readouterr().out.partition("\nverdict\n")
    for ranker, title in (("popularity", "popularity"), ("item_knn", "item-kNN"), ("ease", "EASE")):
        assert f"{report[ranker]['ndcg@10']['mean']:.4f}" in table
        assert re.search(rf"^- (Better than|Worse than|No clear difference from) {title}:", sentences, re.M)
    assert list(report["differences"]) == ["popularity", "item_knn", "ease"]
    assert Run.read(trained).metrics() == {"validation": validation, "test": report}
    assert (validation["part"], report["part"]) == ("validation", "test")
    assert "auto" not in report
    values = load_per_user(trained / PER_USER["test"]).values
    towers, ease = values["towers"], values["ease"]
    paired = report["differences"]["ease"]["ndcg@10"]
    assert paired["mean"] == pytest.approx((towers["ndcg@10"] - ease["ndcg@10"]).mean())
    assert report["towers"]["ndcg@10"]["mean"] == pytest.approx(towers["ndcg@10"].mean())


@pytest.fixture(scope="module")
def chosen(shop: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A run whose experiment the data chose, and what was printed."""
    folder, said = tmp_path_factory.mktemp("chosen") / "run", StringIO()
    with redirect_stdout(said):
        train(shop.folder, "auto", folder, QUICK)
    return folder, said.getvalue().splitlines()


def test_auto_prints_its_reasons_and_trains_what_it_picks(chosen: tuple[Path, list[str]]) -> None:
    folder, lines = chosen
    choice = Run.read(folder).choice
    assert choice is not None
    assert (folder / MODEL).is_file()
    told = [line for line in lines if line.startswith("auto: ")]
    begun = [line for line in told if line.endswith(" left in all")]
    assert [line for line in told if line not in begun] == [
        f"auto: {reason['sentence']}" for reason in choice["reasons"]
    ]
    names = {trial["candidate"] for trial in choice["trials"]}
    matches = [
        re.fullmatch(r"auto: (\w+) until epoch 1 of 1; about \d+ minutes? left in all", line)
        for line in begun
    ]
    assert len(begun) == 3 + 2
    assert {match[1] for match in matches if match} == names
    assert told[-1].startswith(f"auto: Picked: {choice['picked']}, whose validation ndcg@10 of ")
    assert lines[-2].endswith(f"the run is in {folder}")


def test_a_half_in_which_a_baseline_beat_all_trials_is_told_first(
    chosen: tuple[Path, list[str]], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of the training, with the figure of the trained model."""
    run = Run.read(chosen[0])
    ahead = {"kind": RULE_AHEAD, "sentence": "Below EASE.", "figures": {"metric": "ndcg@10"}}
    told = replace(run, choice={"reasons": [ahead, {"kind": "picked", "sentence": "no", "figures": {}}]})
    begun = told, run.open_data()
    monkeypatch.setattr("turret.training.commands.begin_run", lambda *_, **__: begun)
    train(None, None, run.folder, [], resume=True)
    _, first, best, _ = capsys.readouterr().out.splitlines()
    assert first == f"Below EASE. The trained model has {run.best()['ndcg@10']:.4f}."
    figure = f"{run.best()['ndcg@10']:.4f}"
    assert best.startswith(f"best ndcg@10 {figure}, epoch 1, before the refit; the run is in ")


def test_a_chosen_run_is_resumed_without_another_choice(
    chosen: tuple[Path, list[str]], trained: Path, capsys: Capture
) -> None:
    """And a named one is not resumed as a chosen one; an evaluation as JSON has the choice."""
    folder, _ = chosen
    train(None, "auto", folder, QUICK, resume=True)
    assert "auto: " not in capsys.readouterr().out
    for other, settings in ((folder, ["training.epochs=9"]), (trained, [])):
        with pytest.raises(TrainingError, match="begun with other settings"):
            train(None, "auto", other, settings, resume=True)
    evaluate_command(folder, None, "test", as_json=True)
    assert json.loads(capsys.readouterr().out)["auto"] == Run.read(folder).choice
