"""The two towers, whole or a chunk of examples at a time, and the scores between their vectors."""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.utils.checkpoint import checkpoint

from turret.data.features.columns import Features
from turret.data.features.feature import Feature
from turret.tower.config import ScoringConfig
from turret.tower.errors import TowerError
from turret.tower.kernels.elementwise import Normalize, gather_rows
from turret.tower.layers.feature_layers import feature_rows
from turret.tower.layers.packed import PackedHistories, step_at
from turret.tower.layers.windows import window_means
from turret.tower.towers.config import USER_TOWERS, TowerConfig
from turret.tower.towers.context import ContextLayer
from turret.tower.towers.user import joined, perceptron

# Rows that are this many times the catalog hold most of it: computing it whole is faster than sorting them.
MANY = 2
# The ready vectors of this many items are read from files at once.
_VECTORS_AT_ONCE = 32_768
_NO_CONTEXT = Features(0, (), {})


class ItemTower(nn.Module):
    """DSSM's item tower (Huang et al. 2013): id, letter trigrams, codes and numbers, then an MLP.

    With the id alone and no hidden layer the vector *is* the row of the id table. Beside features the rows of
    that table begin at zero, as for an item that was never trained on: only its features count.
    """

    def __init__(
        self, config: TowerConfig, item_count: int, prepared: Features, table_device: str | None = None
    ) -> None:
        super().__init__()
        item = config.item
        names, width = item.features, item.feature_width
        self.rows = feature_rows(names, width, prepared, "tower.item.features") if names else None
        if not item.id and self.rows is None:
            raise TowerError(
                f"tower.item.id = false with tower.item.features = {item.features!r} leaves no "
                "input for an item's vector; set id = true, or name features that the prepared data has."
            )
        self.item_count = item_count
        self.table = nn.Embedding(item_count, config.dimension, device=table_device) if item.id else None
        if self.table is not None:
            nn.init.normal_(self.table.weight, std=config.dimension**-0.5)
            if self.rows is not None:
                nn.init.zeros_(self.table.weight)
        self.id_dropout = item.id_dropout if self.rows else 0.0
        self.mlp: nn.Module = nn.Identity()
        if self.rows is not None or item.hidden:
            width = (config.dimension if item.id else 0) + (self.rows.layers.width if self.rows else 0)
            self.mlp = perceptron(width, item.hidden, config.dimension, item.dropout)

    def forward(self, rows: Tensor) -> Tensor:
        """The vectors of the item `rows` [B]: [B, D], before the scoring's normalisation."""
        ids = None if self.table is None else self.table(rows)
        if ids is not None and self.training and self.id_dropout:
            ids = ids * (torch.rand(len(rows), 1, device=ids.device) >= self.id_dropout)
        vectors: Tensor = self.mlp(joined(ids, None if self.rows is None else self.rows(rows)))
        return vectors

    def feature_reader(self) -> tuple[nn.Linear, int]:
        """The first layer of the MLP; features are its last columns."""
        assert self.rows is not None
        layer = cast(nn.Linear, self.mlp.get_submodule("0"))
        return layer, layer.in_features - self.rows.layers.width


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
        pairs: [N, K], the factors of pairs beside trained towers (`ScoringConfig`), whose products with each
            other are scores, times the temperature; None in training, and where a run has none.
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
        self.pairs: Tensor | None
        self.register_buffer("pairs", None, persistent=False)

    @property
    def scoring(self) -> ScoringConfig:
        """The scoring with the columns of pairs that there are."""
        count = 0 if self.pairs is None else self.pairs.shape[1]
        return self.config.scoring.model_copy(update={"pairs": count})

    @property
    def width(self) -> int:
        """The number of columns of scored vectors: of pairs, then of the towers."""
        return self.scoring.pairs + self.config.dimension

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
        if self.pairs is not None:
            vectors = torch.cat([self.pairs[different], vectors], dim=1)
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
        vectors = scored_items(in_chunks(self.item, rows, size), self.config.scoring)
        return vectors if self.pairs is None else torch.cat([self.pairs, vectors], dim=1)

    def user_vectors(self, histories: PackedHistories, vectors: Tensor) -> Tensor:
        """Scored user vectors of a packed batch whose item vectors are `vectors` [P, D].

        They are [B, D], or [B, I, D] where `tower.user.interests` = I is above 1.
        """
        of_pairs: Tensor | None = None
        if self.pairs is not None:
            of_pairs, vectors = vectors.tensor_split([self.pairs.shape[1]], dim=1)
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
        users = scored_users(users, self.config.scoring)
        if of_pairs is not None:
            users = torch.cat([window_means(of_pairs.contiguous(), histories, 0.5), users], dim=1)
        return users

    def training_vectors(self, users: Tensor, targets: Tensor, groups: Tensor | None = None) -> Tensor:
        """The vector [B, D] that trains each example, of several interests the one that fits its target.

        `users` are those of `user_vectors`, `targets` [B, D] the scored vectors of the targets, and `groups`
        int64 [B] has the user of each example, None for each its own.
        """
        if users.dim() == 2:
            return users if groups is None else gather_rows(users, groups)
        if groups is not None:
            users = gather_rows(users.flatten(1), groups).view(-1, *users.shape[1:])
        return fitting_vectors(users, targets, self.config.scoring)


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


def scored_items(vectors: Tensor, scoring: ScoringConfig) -> Tensor:
    """Item vectors [..., D] whose inner product with `scored_users` is scored.

    The vectors are unit rows for the cosine, and unchanged for the dot product. With `item_bias` the last
    column is the bias, times the temperature that a score will be divided by, and the cosine is of the other
    columns.
    """
    return _scored(vectors, vectors[..., -1:] * scoring.temperature if scoring.item_bias else None, scoring)


def scored_users(vectors: Tensor, scoring: ScoringConfig) -> Tensor:
    """User vectors [..., D] whose inner product with `scored_items` is scored.

    The vectors are unit rows for the cosine, and unchanged for the dot product. With `item_bias` the last
    column is 1 in place of the tower's output: an item's bias counts once.
    """
    return _scored(vectors, torch.ones_like(vectors[..., -1:]) if scoring.item_bias else None, scoring)


def _scored(vectors: Tensor, last: Tensor | None, scoring: ScoringConfig) -> Tensor:
    """Vectors as the scoring needs them, with the column `last`, if there is one, in place of the last."""
    directions = vectors if last is None else vectors[..., :-1]
    if scoring.kind == "cosine" and torch.compiler.is_exporting():
        directions = normalize(directions, dim=-1)  # ONNX has no form of our own function
    elif scoring.kind == "cosine":
        directions = Normalize.apply(directions)  # type: ignore[no-untyped-call] # torch annotates neither
    return directions if last is None else torch.cat([directions, last], dim=-1)


def paired_scores(users: Tensor, items: Tensor, scoring: ScoringConfig) -> Tensor:
    """The score of each user vector [..., D] with its own item vector [..., D]: [...]."""
    return signed_or_absolute((users * items).sum(dim=-1) / scoring.temperature, scoring)


def cross_scores(users: Tensor, items: Tensor, scoring: ScoringConfig) -> Tensor:
    """The scores of all user vectors [B, D] with the items [K, D], or each with its own [B, K, D]: [B, K]."""
    # Dividing the B x D vectors is cheaper than dividing the B x K scores.
    users = users / scoring.temperature
    products = users @ items.T if items.dim() == 2 else torch.einsum("bd,bkd->bk", users, items)
    return signed_or_absolute(products, scoring)


def served_scores(users: Tensor, items: Tensor, scoring: ScoringConfig) -> Tensor:
    """The scores [U, N] of user vectors [U, D] with the catalog [N, D], by the service's own arithmetic."""
    return signed_or_absolute((users / scoring.temperature) @ items.T, scoring)


def fitting_vectors(interests: Tensor, items: Tensor, scoring: ScoringConfig) -> Tensor:
    """The vector [B, D] of `interests` [B, I, D] that trains each example, by the target of `items` [B, D].

    It is the interest with the highest score of the target, which alone gets a gradient (Cen et al. 2020,
    section 3.2).
    """
    return step_at(interests, paired_scores(interests, items.unsqueeze(1), scoring).argmax(dim=1))


def best_scores(scores: Tensor) -> Tensor:
    """The best of the scores [I, U, N] by each interest: [U, N], in the memory of the first ones."""
    best = scores[0]
    for other in scores[1:]:
        torch.maximum(best, other, out=best)
    return best


def signed_or_absolute(scores: Tensor, scoring: ScoringConfig) -> Tensor:
    """Scores [...] as they are, or without their sign where the scoring says so."""
    return scores.abs() if scoring.absolute else scores
