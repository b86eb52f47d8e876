import numpy as np
import pytest

from turret.training.inspection.rankings import Rankings
from turret.training.run import Run


def test_rankings_are_those_that_evaluate_measured(rankings: Rankings, evaluated: Run) -> None:
    own = evaluated.metrics()["test"]["towers"]
    assert rankings.hits.any(axis=1).mean() == pytest.approx(own["hr@10"]["mean"])
    shown = np.unique(rankings.rows[rankings.rows >= 0])
    assert len(shown) / len(rankings.data.item_ids) == pytest.approx(own["coverage@10"])


def test_the_whole_order_begins_with_the_first_items(rankings: Rankings) -> None:
    """Items of the history are left out, and -1 fills their places at the end."""
    users = rankings.relevant.users[[3, 0]]
    order = rankings.order(users)
    assert order.shape == (2, len(rankings.data.item_ids))
    assert order[:, :10].tolist() == rankings.rows[[3, 0]].tolist()
    for user, rows in zip(users, order, strict=True):
        used = set(rankings.data.history(int(user), "test").tolist())
        assert not used & set(rows.tolist())
        assert (rows < 0).sum() == len(used)
