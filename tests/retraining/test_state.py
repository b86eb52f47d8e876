from pathlib import Path

import pytest

from tests.retraining.records import size
from turret.data.errors import TurretError
from turret.retraining.state import STATE, RunState, iso, read_state, record_of, remove_state
from turret.retraining.steps import RECORD, STEPS, step_after

NAMES = list(STEPS)


def state(**fields: object) -> RunState:
    plain = {"run": "r1", "started": iso(0), "until": 0, "before": size(10), "data_changed": False}
    return RunState.model_validate({**plain, "step": "gather", **fields})


def test_a_state_is_read_back_and_removed_with_what_a_killed_dump_left(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    written = state(step="train", new_events=3, after=size(13))
    written.save(tmp_path)
    assert read_state(tmp_path) == written
    written.dump(tmp_path).write_text("events")
    (tmp_path / f".{written.dump(tmp_path).name}.0.new").mkdir()
    remove_state(tmp_path, written)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_state_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / STATE).write_text("{}")
    with pytest.raises(TurretError, match="delete it, and the next run begins anew"):
        read_state(tmp_path)


def test_the_steps_follow_each_other() -> None:
    order = [step_after(state(step=name)) for name in NAMES]
    assert order == [*NAMES[1:], RECORD]


@pytest.mark.parametrize("name", NAMES[:8])
def test_after_a_decision_only_retention_follows(name: str) -> None:
    assert step_after(state(step=name, decision="nothing_new")) == "retire"


def test_a_state_with_a_decision_goes_on_through_retention() -> None:
    assert step_after(state(step="retire", decision="activated")) == "delete"
    assert step_after(state(step="delete", decision="activated")) == RECORD


def test_the_record_of_a_state_without_a_decision_names_the_failed_step() -> None:
    failed = record_of(state(step="train", message="it diverged", status=1), iso(2000))
    assert (failed.decision, failed.step, failed.status) == ("failed", "train", 1)
    done = record_of(state(step="deploy", decision="activated", version="v"), iso(2000))
    assert (done.decision, done.step, done.version) == ("activated", None, "v")
    assert (done.started, done.until, done.ended) == (iso(0), iso(0), iso(2000))
