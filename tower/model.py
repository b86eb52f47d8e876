"""Both towers together, as training sees them."""

import torch
from torch import Tensor, nn

from data.features import Features
from tower.config import TowerConfig
from tower.gather import gather_rows
from tower.item import ItemTower
from tower.packed import PackedHistories
from tower.scoring import scored_form
from tower.user_towers import build_user_tower


class TwoTowers(nn.Module):
    """A user tower and an item tower whose vectors meet in one inner product.

    The history that the user tower reads is made of the *scored* item vectors, those that the index
    holds: a bundle needs no second table, and an item with features alone can stand in a history.
    """

    def __init__(
        self, config: TowerConfig, item_count: int, item_features: Features, user_features: Features
    ) -> None:
        super().__init__()
        self.config = config
        self.item = ItemTower(config, item_count, item_features)
        self.user = build_user_tower(config, user_features)

    def item_vectors(self, rows: Tensor) -> Tensor:
        """Scored item vectors of `rows` [...]: [..., D]. Each different row passes the tower once."""
        different, places = torch.unique(rows, return_inverse=True)
        return gather_rows(scored_form(self.item(different), self.config.scoring), places)

    @torch.no_grad()
    def current_vectors(self, rows: Tensor) -> Tensor:
        """Scored item vectors of `rows` [...] as they would be served, without a gradient: [..., D]."""
        training = self.item.training
        self.item.eval()
        vectors = self.item_vectors(rows)
        self.item.train(training)
        return vectors

    def catalogue_vectors(self) -> Tensor:
        """The scored vectors of the whole catalogue: [N, D]."""
        rows = torch.arange(self.item.item_count, device=next(self.parameters()).device)
        return scored_form(self.item(rows), self.config.scoring)

    def user_vectors(self, histories: PackedHistories, vectors: Tensor) -> Tensor:
        """Scored user vectors [B, D] of a packed batch whose item vectors are `vectors` [P, D]."""
        return scored_form(self.user(histories, vectors), self.config.scoring)
