"""The history of a run, line by line."""

from pathlib import Path

import pytest

from turret.training.errors import TrainingError
from turret.training.records.history import HISTORY, History, load_history


def test_measurements_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert load_history(tmp_path) == []
    history = History(tmp_path, 0, 0)
    history.append(1, 0, 0.5, {"loss/train": 2.5})
    history.append(4, 1, 1.25, {"loss/epoch": 2.0, "validation/ndcg@10": 0.125})
    assert load_history(tmp_path) == [
        {"step": 1, "epoch": 0, "seconds": 0.5, "loss/train": 2.5},
        {"step": 4, "epoch": 1, "seconds": 1.25, "loss/epoch": 2.0, "validation/ndcg@10": 0.125},
    ]


def test_a_resumed_training_drops_lines_that_its_checkpoint_does_not_include(tmp_path: Path) -> None:
    """Those of later steps, that of an epoch which the checkpoint has not ended, and half a line."""
    history = History(tmp_path, 0, 0)
    for step, epoch in ((1, 0), (4, 1), (5, 1), (8, 1), (9, 1), (8, 2), (9, 2)):
        history.append(step, epoch, float(step), {})
    with (tmp_path / HISTORY).open("a") as stream:
        stream.write('{"step": 1')
    History(tmp_path, 8, 1).append(8, 2, 8.5, {})
    kept = [(entry["step"], entry["epoch"]) for entry in load_history(tmp_path)]
    assert kept == [(1, 0), (4, 1), (5, 1), (8, 1), (8, 2)]


@pytest.mark.parametrize("line", ["{", "[]", '{"step": 1}', "7"])
def test_a_damaged_history_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    History(tmp_path, 0, 0).append(1, 0, 0.5, {})
    with (tmp_path / HISTORY).open("a") as stream:
        stream.write(line + "\n")
    with pytest.raises(TrainingError, match=r"history\.jsonl, line 2: it can't be read"):
        load_history(tmp_path)
