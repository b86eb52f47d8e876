import numpy as np
import pytest
import torch

from tests.oracles import ranking as oracle
from turret.data.prepared import PreparedData
from turret.training.config.experiment import ExperimentConfig
from turret.training.evaluation.ranking import mask_seen, popularity_scores, rank, tower_scores
from turret.training.run import build_model


@pytest.mark.parametrize("exclude_seen", [True, False])
def test_towers_rank_what_their_vectors_say(handmade: PreparedData, exclude_seen: bool) -> None:
    """Each user's ranking is the inner product of vectors computed one by one; nobody gets a seen item."""
    model = build_model(ExperimentConfig(), handmade).eval()
    popularity = handmade.item_counts("train")
    users = np.arange(5)
    scores_of = tower_scores(model, handmade, "test", popularity)
    (block,) = rank(scores_of, handmade, users, "test", 3, exclude_seen)
    items = model.catalog_vectors().detach()
    for user in range(5):
        history = handmade.history(user, "test").tolist()
        read = items[history]
        served = model.user.served(read[None], torch.tensor([len(history)]), {})
        vector = torch.nn.functional.normalize(served, dim=1)[0]
        expected = oracle.ranking((items @ vector).tolist(), set(history) if exclude_seen else set())[:3]
        assert [row for row in block.rows[user].tolist() if row >= 0] == expected


def test_blocks_are_scored_in_one_memory(handmade: PreparedData) -> None:
    """Memory grew with the number of blocks before."""
    model = build_model(ExperimentConfig(), handmade).eval()
    scores_of = tower_scores(model, handmade, "test", handmade.item_counts("train"))
    assert len({scores_of(np.array([user])).data_ptr() for user in range(5)}) == 1


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


def test_the_oldest_of_many_seen_items_is_masked(handmade: PreparedData) -> None:
    """A history of 300 events, the first of them of an item of its own."""
    long = np.concatenate([[2], np.zeros(299), [1, 1]]).astype(np.int32)
    fields = vars(handmade) | {
        "event_items": long,
        "offsets": np.array([0, 302]),
        "splits": np.array([[300, 301]]),
    }
    scores = torch.ones(1, len(handmade.item_ids))
    mask_seen(scores, PreparedData(**fields), np.arange(1), "validation")
    assert torch.isinf(scores[0]).nonzero().flatten().tolist() == [0, 2]
