"""The two towers, whole or a chunk of examples at a time."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from turret.data.features.columns import Features
from turret.data.features.feature import Feature
from turret.tower.layers.feature_layers import feature_rows
from turret.tower.layers.packed import PackedHistories, gather_rows
from turret.tower.towers.config import USER_TOWERS, TowerConfig
from turret.tower.towers.context import ContextLayer
from turret.tower.towers.item import ItemTower
from turret.tower.towers.scoring import scored_items, scored_users


def in_chunks(compute: Callable[[Tensor], Tensor], rows: Tensor, size: int) -> Tensor:
    """`compute(rows)` for rows [R], no more than `size` (0 for all) of them at once: [R, ...]."""
    if not 0 < size < len(rows):
        return compute(rows)
    parts = (rows[start : start + size] for start in range(0, len(rows), size))
    return torch.cat([_again(compute, part) for part in parts])


def _again(compute: Callable[..., Tensor], *inputs: object) -> Tensor:
    # The second pass has the random numbers of the first, so that dropout drops the same values.
    computed: Tensor = checkpoint(compute, *inputs, use_reentrant=False)
    return computed


# Rows that are this many times the catalog hold most of it: computing it whole is faster than sorting them.
MANY = 2
# The ready vectors of this many items are read from files at once.
_VECTORS_AT_ONCE = 32_768
_NO_CONTEXT = Features(0, (), {})


class KindLayer(nn.Module):
    """Weighs each item vector of a history by the kind of its event, and adds a vector of the kind.

    A mean over a history then counts a purchase for more than a view, and towers that read one event at a
    time can tell them apart. At first, and for an event of an unknown kind, the item vector is unchanged.
    """

    def __init__(self, count: int, dimension: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.zeros(count, 1))
        self.added = nn.Parameter(torch.zeros(count, dimension))

    def forward(self, vectors: Tensor, kinds: Tensor) -> Tensor:
        """Weigh `vectors` [..., D] of events of `kinds` [...], codes from 0, -1 if unknown: [..., D]."""
        codes = torch.arange(len(self.added), device=kinds.device)
        is_of = (kinds.unsqueeze(-1) == codes).to(vectors.dtype)
        return vectors * (1.0 + is_of @ self.factor) + is_of @ self.added


class TwoTowers(nn.Module):
    """A user tower and an item tower whose vectors meet in one inner product.

    The history that the user tower reads is made of the *scored* item vectors, which the index
    holds: a bundle needs no second table, and an item with features alone can stand in a history.

    Attributes:
        kinds: the layer of the kinds of events; None where the towers read none.
        context: the layer of the contexts of requests; None where the towers read none.
        chunk_size: how many items, and how many examples, a tower computes at once; 0 for all.
        reads_sets: whether histories have each item once, at its first use.

    `kind_count` is the number of kinds in the data, zero where all events are alike.

    `table_device` = "meta" makes the table of ids without memory, for rows that are loaded later.
    """

    def __init__(
        self,
        config: TowerConfig,
        item_count: int,
        item_features: Features,
        user_features: Features,
        table_device: str | None = None,
        kind_count: int = 0,
        reads_sets: bool = False,
        context_features: Features = _NO_CONTEXT,
    ) -> None:
        super().__init__()
        self.config = config
        self.reads_sets = reads_sets
        self.chunk_size = 0
        self.item = ItemTower(config, item_count, item_features, table_device)
        self.user = USER_TOWERS[config.user.kind](config.user, config.dimension, user_features)
        reads_kinds = config.user.kinds and config.user.context != "none" and kind_count > 1
        self.kinds = KindLayer(kind_count, config.dimension) if reads_kinds else None
        self.context: ContextLayer | None = None
        if config.user.context_features:
            names, width = config.user.context_features, config.user.feature_width
            rows = feature_rows(names, width, context_features, "tower.user.context_features")
            self.context = ContextLayer(rows, config.dimension) if rows else None

    @property
    def request_features(self) -> tuple[Feature, ...]:
        """The features of a request: those of its user, then those of its context."""
        both = (self.user.rows, self.context.rows if self.context else None)
        return tuple(feature for rows in both if rows is not None for feature in rows.layers.features)

    @property
    def context_names(self) -> tuple[str, ...]:
        """The names of the features of contexts that are read."""
        return tuple(feature.name for feature in self.context.rows.layers.features) if self.context else ()

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
        places = torch.split(positions, [rows.numel() for rows in parts])
        return tuple(
            gather_rows(vectors, part.view(rows.shape)) for part, rows in zip(places, parts, strict=True)
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
        has_vectors = self.item.rows is not None and self.item.rows.has_vectors
        size = self.chunk_size or (_VECTORS_AT_ONCE if has_vectors else 0)
        return scored_items(in_chunks(self.item, rows, size), self.config.scoring)

    def user_vectors(self, histories: PackedHistories, vectors: Tensor) -> Tensor:
        """Scored user vectors [B, D] of a packed batch whose item vectors are `vectors` [P, D]."""
        if self.kinds is not None and histories.kinds is not None:
            vectors = self.kinds(vectors, histories.kinds)
        count, size = len(histories.starts), self.chunk_size
        if not 0 < size < count:
            users = self.user(histories, vectors)
        else:
            parts = (histories.part(slice(start, start + size)) for start in range(0, count, size))
            users = torch.cat([_again(self.user, part, vectors[events]) for part, events in parts])
        if self.context is not None:
            users = self.context(users, histories.contexts)
        return scored_users(users, self.config.scoring)
