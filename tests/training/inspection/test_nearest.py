import numpy as np
import pytest
import torch

from turret.training.inspection.nearest import ITEMS, NEAREST, nearest_items
from turret.training.inspection.rankings import Rankings


def test_the_nearest_items_are_those_of_the_largest_cosine(rankings: Rankings) -> None:
    popularity = rankings.data.item_counts("train")
    popular, rare = nearest_items(rankings, seed=0)
    assert [one.row for one in popular] == np.argsort(-popularity, kind="stable")[:ITEMS].tolist()
    with torch.no_grad():
        vectors = rankings.model.catalog_vectors()
    scoring = rankings.model.config.scoring
    plain = (vectors[:, :-1] if scoring.item_bias else vectors).double()
    for one in popular + rare:
        cosines = plain @ plain[one.row]
        cosines[one.row] = -torch.inf
        assert one.similarities == pytest.approx(
            cosines.sort(descending=True).values[:NEAREST].tolist(), abs=1e-5
        )
        assert one.row not in one.nearest
        assert one.events == popularity[one.row]


def test_rare_items_are_rare_and_have_an_event(rankings: Rankings) -> None:
    popularity = rankings.data.item_counts("train")
    popular, rare = nearest_items(rankings, seed=0)
    used = np.sort(popularity[popularity > 0])
    assert all(0 < one.events <= used[len(used) // 10] for one in rare)
    assert not {one.row for one in rare} & {one.row for one in popular}
