"""One step of the same batch by one, two and four processes."""

import pytest

from tests.training.distributed.comparison import check_equal
from tests.training.distributed.conftest import Answers
from tests.training.distributed.scenarios import STEPS

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("scenario", STEPS)
def test_processes_make_the_step_that_one_makes(answers: Answers, scenario: str, size: int) -> None:
    (alone,) = answers["steps", 1]
    for together in answers["steps", size]:
        check_equal(together[scenario], alone[scenario])


def test_split_tables_are_held_in_parts(answers: Answers) -> None:
    """Else the test above would compare tables held whole."""
    parts = [steps["split tables"] for steps in answers["steps", 4]]
    bounds = [part.rows["item.table.weight"] for part in parts]
    assert bounds == [(0, 48), (48, 96), (96, 144), (144, 192)]
    assert [len(part.weights["item.table.weight"]) for part in parts] == [48] * 4
