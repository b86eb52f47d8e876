import pytest
import torch

from tower.config import ScoringConfig
from tower.scoring import cross_scores, paired_scores, scored_form


def test_cosine_gives_unit_rows_and_dot_leaves_them() -> None:
    """The scored form of [3, 4] is [.6, .8] for the cosine and itself for the dot product."""
    given = torch.tensor([[3.0, 4.0]])
    torch.testing.assert_close(scored_form(given, ScoringConfig(kind="cosine")), torch.tensor([[0.6, 0.8]]))
    assert torch.equal(scored_form(given, ScoringConfig(kind="dot")), given)


def test_scores_are_inner_products_over_the_temperature() -> None:
    """Paired, shared and per-example candidates are scored alike."""
    users = torch.tensor([[1.0, 2.0], [0.0, -1.0]])
    items = torch.tensor([[3.0, 1.0], [1.0, 4.0]])
    scoring = ScoringConfig(kind="dot", temperature=0.5)
    assert paired_scores(users, items, scoring).tolist() == [10.0, -8.0]
    shared = cross_scores(users, items, scoring)
    assert shared.tolist() == [[10.0, 18.0], [-2.0, -8.0]]
    assert torch.equal(cross_scores(users, items.expand(2, 2, 2), scoring), shared)


def test_an_absolute_score_has_no_sign() -> None:
    """The same products, their sign dropped."""
    users = torch.tensor([[1.0, 2.0], [0.0, -1.0]])
    items = torch.tensor([[3.0, 1.0], [1.0, 4.0]])
    scoring = ScoringConfig(kind="dot", temperature=0.5, absolute=True)
    assert paired_scores(users, items, scoring).tolist() == [10.0, 8.0]
    assert cross_scores(users, items, scoring).tolist() == [[10.0, 18.0], [2.0, 8.0]]


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_a_temperature_must_be_positive(temperature: float) -> None:
    """Zero and below are refused."""
    with pytest.raises(ValueError, match="greater than 0"):
        ScoringConfig(temperature=temperature)
