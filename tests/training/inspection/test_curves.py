import json
from dataclasses import replace
from pathlib import Path

import pytest

from turret.training.errors import TrainingError
from turret.training.inspection.curves import MOST_POINTS, curves_of
from turret.training.records.history import HISTORY, load_history
from turret.training.run import Run


def test_the_curves_are_those_of_the_history_with_the_best_evaluation(evaluated: Run) -> None:
    found, progress = curves_of(evaluated), evaluated.progress()
    assert progress is not None
    assert found.validation.values == [value for _, value in progress.validated]
    assert found.best == progress.best
    assert found.best_epoch == progress.best_epoch
    losses = [entry["loss/epoch"] for entry in load_history(evaluated.folder) if "loss/epoch" in entry]
    assert found.epoch_loss.values == losses
    assert found.loss.steps[0] == 1
    assert len(found.learning_rate.values) == len(found.loss.values)


def test_a_long_history_is_thinned_out_up_to_its_last_point(evaluated: Run, tmp_path: Path) -> None:
    lines = [
        json.dumps({"step": n, "epoch": 0, "seconds": n, "loss/train": float(n)}) for n in range(1, 1001)
    ]
    (tmp_path / HISTORY).write_text("\n".join(lines))
    found = curves_of(replace(evaluated, folder=tmp_path))
    assert len(found.loss.steps) <= MOST_POINTS + 1
    assert (found.loss.steps[0], found.loss.steps[-1]) == (1, 1000)
    assert (found.best_step, found.best) == (None, None)


def test_a_run_without_a_history_has_no_curves_and_a_damaged_one_is_named(
    evaluated: Run, tmp_path: Path
) -> None:
    assert curves_of(replace(evaluated, folder=tmp_path)).validation.values == []
    (tmp_path / HISTORY).write_text("{")
    with pytest.raises(TrainingError, match=r"history\.jsonl, line 1: it can't be read"):
        curves_of(replace(evaluated, folder=tmp_path))
