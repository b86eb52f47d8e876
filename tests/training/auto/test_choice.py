from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.training.auto.facts import facts
from turret.data.prepared import PreparedData
from turret.training.auto import choice as module
from turret.training.auto.choice import choose, chosen_run
from turret.training.auto.facts import Facts
from turret.training.auto.trials import Trial
from turret.training.config.experiment import ExperimentConfig, load_experiment
from turret.training.errors import TrainingError
from turret.training.run import CHECKPOINT, CHOSEN, Run


def give(monkeypatch: pytest.MonkeyPatch, values: Mapping[str, float | None], found: Facts) -> None:
    """Let the data have these figures, and trials these values."""

    def trials(
        candidates: Mapping[str, ExperimentConfig], facts: Facts, data: PreparedData
    ) -> Iterator[Trial]:
        for name in candidates:
            yield Trial(name, values[name], 2, 3, 1.0, "" if values[name] is not None else "no memory")

    monkeypatch.setattr(module, "facts_of", lambda data: found)
    monkeypatch.setattr(module, "run_trials", trials)


def test_the_best_validation_value_is_picked(monkeypatch: pytest.MonkeyPatch, handmade: PreparedData) -> None:
    """And the reasons are reported as they arise."""
    give(monkeypatch, {"transformer": 0.11, "pooled": 0.12}, facts())
    lines: list[str] = []
    chosen = choose(handmade, {}, lines.append)
    assert chosen.picked == "pooled"
    assert chosen.experiment.tower.user.kind == "pooled"
    assert lines == [f"auto: {reason.sentence}" for reason in chosen.reasons]
    assert lines[-1] == (
        "auto: Picked: pooled, whose validation ndcg@10 is the best, 0.1200; transformer has 0.1100."
    )
    assert [reason.kind for reason in chosen.reasons] == ["order", "size", "trial", "trial", "picked"]


def test_a_failed_trial_is_never_picked(monkeypatch: pytest.MonkeyPatch, handmade: PreparedData) -> None:
    give(monkeypatch, {"transformer": 0.0, "pooled": None}, facts())
    chosen = choose(handmade, {}, print)
    assert chosen.picked == "transformer"
    assert [reason.kind for reason in chosen.reasons][-2:] == ["failed", "picked"]
    assert chosen.reasons[-1].sentence.endswith("is the best, 0.0000.")


def test_without_a_trial_that_succeeds_nothing_is_picked(
    monkeypatch: pytest.MonkeyPatch, handmade: PreparedData
) -> None:
    give(monkeypatch, {"transformer": None, "pooled": None}, facts())
    with pytest.raises(TrainingError, match="every trial failed: no memory"):
        choose(handmade, {}, print)


def test_without_trials_the_first_candidate_is_picked(
    monkeypatch: pytest.MonkeyPatch, handmade: PreparedData
) -> None:
    give(monkeypatch, {}, facts(has_validation=False))
    chosen = choose(handmade, {}, print)
    assert (chosen.picked, chosen.trials) == ("transformer", ())
    assert chosen.reasons[-1].kind == "no_trials"
    assert chosen.reasons[-1].sentence == (
        "Picked: transformer, without trials, as the data has no validation part."
    )


def test_a_run_stores_the_choice_and_the_experiment_as_a_file(
    monkeypatch: pytest.MonkeyPatch, handmade: PreparedData, tmp_path: Path
) -> None:
    give(monkeypatch, {"transformer": 0.11, "pooled": 0.12}, facts())
    run = chosen_run(tmp_path, handmade, ["training.seed=7"], False, print)
    run.write()
    stored = Run.read(tmp_path)
    assert stored == run
    assert stored.choice is not None
    assert set(stored.choice) == {"picked", "reasons", "trials"}
    assert load_experiment(str(tmp_path / CHOSEN)) == run.experiment
    assert run.experiment.training.seed == 7


def test_a_run_that_is_there_is_refused_before_the_trials(handmade: PreparedData, tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT).write_bytes(b"")
    with pytest.raises(TrainingError, match="there is a run here already"):
        chosen_run(tmp_path, handmade, {}, False, pytest.fail)
