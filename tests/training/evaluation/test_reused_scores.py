import pytest
import torch

from turret.tower.config import ScoringConfig
from turret.tower.towers.scoring import served_scores
from turret.training.evaluation.reused_scores import ReusedScores


@pytest.mark.parametrize("absolute", [False, True])
def test_scores_are_those_of_the_service_in_one_memory(absolute: bool) -> None:
    scores_of, scoring = ReusedScores(), ScoringConfig(temperature=0.5, absolute=absolute)
    items = torch.randn(300, 8)
    addresses = set()
    for count in (5, 5, 3):
        users = torch.randn(count, 8)
        scores = scores_of(users, items, scoring)
        assert torch.equal(scores, served_scores(users, items, scoring))
        addresses.add(scores.data_ptr())
    assert len(addresses) == 1


def test_items_of_another_type_get_a_memory_of_that_type() -> None:
    scores_of, scoring = ReusedScores(), ScoringConfig()
    for dtype in (torch.float32, torch.float64):
        users, items = torch.randn(2, 4, dtype=dtype), torch.randn(9, 4, dtype=dtype)
        assert torch.equal(scores_of(users, items, scoring), served_scores(users, items, scoring))
