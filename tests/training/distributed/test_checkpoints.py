"""Checkpoints of several processes, resumed by as many, by fewer and by one."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.training.distributed.comparison import check_equal
from tests.training.distributed.conftest import Answers
from turret.training.run import MODEL

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize(("name", "size"), [("", 4), ("", 3), ("", 1), (" by row", 3), (" by row", 1)])
def test_any_number_of_processes_goes_on_where_four_stopped(answers: Answers, name: str, size: int) -> None:
    (alone,) = answers[f"resumed{name}", 1]
    for step, _ in answers[f"resumed{name}", size]:
        check_equal(step, alone[0])
    for step in answers[f"saved{name}", 4]:
        check_equal(step, alone[0])


def test_processes_go_on_where_one_stopped(answers: Answers) -> None:
    (alone,) = answers["saved whole", 1]
    for step, _ in answers["resumed whole", 3]:
        check_equal(step, alone)


@pytest.mark.parametrize("name", ["split", "by_row"])
def test_the_best_model_is_one_file_of_all_parts(answers: Answers, name: str) -> None:
    """It is the best of the checkpoint too, whoever reads it."""
    job = {"split": "resumed", "by_row": "resumed by row"}[name]
    stored = load_file(answers.folder / name / MODEL)
    ((_, best),) = answers[job, 1]
    assert stored.keys() == best.keys()
    for key, tensor in best.items():
        np.testing.assert_array_equal(stored[key], tensor)
    parts = [part["item.table.weight"] for _, part in answers[job, 3]]
    np.testing.assert_array_equal(np.concatenate(parts), stored["item.table.weight"])


def test_a_run_keeps_one_checkpoint(answers: Answers) -> None:
    names = sorted(path.name for path in (answers.folder / "split").iterdir())
    assert names == ["checkpoint-0-2-rows", "checkpoint.safetensors", "model.safetensors", "run.json"]
    files = (answers.folder / "split" / "checkpoint-0-2-rows").iterdir()
    assert {path.suffix for path in files} == {".safetensors"}
