import numpy as np
import pytest
import torch

from data.sequences import PreparedData
from tests.oracles import ranking as oracle
from training.config import ExperimentConfig
from training.ranking import popularity_scores, rank, top_rows, tower_scores
from training.run import build_model


def test_ties_come_in_ascending_order_across_the_cut() -> None:
    """Many equal scores: the lowest rows win, also where the k-th place ties with what is beyond."""
    scores = torch.tensor([[1.0, 2.0, 2.0, 1.0, 2.0, 1.0], [0.0] * 6, [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]])
    assert top_rows(scores, 4).tolist() == [[1, 2, 4, 0], [0, 1, 2, 3], [0, 1, 2, 3]]


def test_masked_items_never_appear() -> None:
    """Where fewer than k items are left, -1 fills up."""
    scores = torch.tensor([[float("-inf"), 1.0, float("-inf"), 3.0]])
    assert top_rows(scores, 3).tolist() == [[3, 1, -1]]


@pytest.mark.parametrize("k", [1, 3, 7, 50])
def test_agrees_with_sorting(k: int) -> None:
    """Random scores with many ties against a plain sort."""
    scores = torch.randint(0, 6, (40, 50), generator=torch.manual_seed(k)).float()
    for line, ranked in zip(scores.tolist(), top_rows(scores, k).tolist(), strict=True):
        assert ranked == oracle.ranking(line, set())[:k]


@pytest.mark.parametrize("exclude_seen", [True, False])
def test_towers_rank_what_their_vectors_say(handmade: PreparedData, exclude_seen: bool) -> None:
    """Each user's ranking is the inner product of vectors computed one by one; nobody gets a seen item."""
    model = build_model(ExperimentConfig(), handmade).eval()
    popularity = handmade.item_counts("train")
    users = np.arange(5)
    scores_of = tower_scores(model, handmade, "test", popularity)
    (block,) = rank(scores_of, handmade, users, "test", 3, exclude_seen)
    items = model.catalogue_vectors().detach()
    for user in range(5):
        history = handmade.history(user, "test").tolist()
        read = items[history]
        served = model.user.served(read[None], torch.tensor([len(history)]), {})
        vector = torch.nn.functional.normalize(served, dim=1)[0]
        expected = oracle.ranking((items @ vector).tolist(), set(history) if exclude_seen else set())[:3]
        assert [row for row in block.rows[user].tolist() if row >= 0] == expected


def test_users_without_a_history_get_the_popular_items(handmade: PreparedData) -> None:
    """As the service does: ranked by training events, ties by row."""
    popularity = handmade.item_counts("train")
    model = build_model(ExperimentConfig(), handmade).eval()
    shifted = PreparedData(**{**vars(handmade), "splits": np.repeat(handmade.offsets[:-1, None], 2, axis=1)})
    users = np.arange(5)
    (towers,) = rank(tower_scores(model, shifted, "test", popularity), shifted, users, "test", 4, True)
    (baseline,) = rank(popularity_scores(popularity), shifted, users, "test", 4, True)
    assert (
        towers.rows.tolist() == baseline.rows.tolist() == [oracle.ranking(popularity.tolist(), set())[:4]] * 5
    )
