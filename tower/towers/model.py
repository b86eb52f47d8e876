"""Both towers together, as training sees them."""

import torch
from torch import Tensor, nn

from turret.data.features import Features
from turret.tower.layers.gather import gather_rows
from turret.tower.layers.packed import PackedHistories
from turret.tower.towers.chunks import histories_in_chunks, in_chunks
from turret.tower.towers.config import TowerConfig
from turret.tower.towers.item import ItemTower
from turret.tower.towers.scoring import scored_items, scored_users
from turret.tower.towers.user import UserTower
from turret.tower.towers.user_towers import build_user_tower

# Rows that are this many times the catalog hold most of it: computing it whole is faster than sorting them.
MANY = 2


class TwoTowers(nn.Module):
    """A user tower and an item tower whose vectors meet in one inner product.

    The history that the user tower reads is made of the *scored* item vectors, those that the index
    holds: a bundle needs no second table, and an item with features alone can stand in a history.

    Attributes:
        chunk_size: how many items, and how many examples, a tower computes at once; 0 for all.
    """

    def __init__(
        self, config: TowerConfig, item_count: int, item_features: Features, user_features: Features
    ) -> None:
        super().__init__()
        self.config = config
        self.chunk_size = 0
        self.item = ItemTower(config, item_count, item_features)
        self.user: UserTower = build_user_tower(config.user, config.dimension, user_features)

    def item_vectors(self, rows: Tensor) -> Tensor:
        """Scored item vectors of `rows` [...]: [..., D]. Each different row passes the tower once."""
        return self.item_vectors_each(rows)[0]

    def item_vectors_each(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """Scored item vectors of several `rows` [...], of which each different row passes the tower once."""
        if sum(rows.numel() for rows in parts) > MANY * self.item.item_count:
            vectors = self.catalog_vectors()
            return tuple(gather_rows(vectors, rows) for rows in parts)
        different, positions = torch.unique(
            torch.cat([rows.flatten() for rows in parts]), return_inverse=True
        )
        vectors = scored_items(in_chunks(self.item, different, self.chunk_size), self.config.scoring)
        found = torch.split(positions, [rows.numel() for rows in parts])
        return tuple(
            gather_rows(vectors, some.view(rows.shape)) for some, rows in zip(found, parts, strict=True)
        )

    @torch.no_grad()
    def current_vectors(self, rows: Tensor) -> Tensor:
        """Scored item vectors of `rows` [...] as they would be served, without a gradient: [..., D]."""
        training = self.item.training
        self.item.eval()
        vectors = self.item_vectors(rows)
        self.item.train(training)
        return vectors

    def catalog_vectors(self) -> Tensor:
        """The scored vectors of the whole catalog: [N, D]."""
        rows = torch.arange(self.item.item_count, device=next(self.parameters()).device)
        return scored_items(in_chunks(self.item, rows, self.chunk_size), self.config.scoring)

    def user_vectors(self, histories: PackedHistories, vectors: Tensor) -> Tensor:
        """Scored user vectors [B, D] of a packed batch whose item vectors are `vectors` [P, D]."""
        users = histories_in_chunks(self.user, histories, vectors, self.chunk_size)
        return scored_users(users, self.config.scoring)
