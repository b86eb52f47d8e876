"""The settings of both towers, the `[tower]` tables of an experiment, and the registry of user towers.

A package adds a user tower by an entry point of the group `turret.user_towers` that names a
subclass of `UserTower`.
"""

from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import BeforeValidator, Field, model_validator

from turret.data.extras import kind_of, registry
from turret.tower.config import FeatureNames, Rate, ScoringConfig, Settings, Width
from turret.tower.errors import TowerError
from turret.tower.towers.gru import GruUserTower
from turret.tower.towers.pooled import AttentiveUserTower, PooledUserConfig, PooledUserTower
from turret.tower.towers.query import QueryTower
from turret.tower.towers.transformer import TransformerUserTower
from turret.tower.towers.user import UserTower, UserTowerSettings

GROUP = "turret.user_towers"
OURS: tuple[type[UserTower], ...] = (
    PooledUserTower,
    AttentiveUserTower,
    GruUserTower,
    TransformerUserTower,
    QueryTower,
)
USER_TOWERS = registry(OURS, GROUP, UserTower, TowerError, lambda tower: kind_of(tower.settings))


def _with_kind(table: Any) -> Any:
    """A table without a kind describes a pooled tower."""
    return {"kind": "pooled", **table} if isinstance(table, dict) else table


if TYPE_CHECKING:
    UserTowerConfig = UserTowerSettings
else:
    UserTowerConfig = Annotated[
        Union[tuple(tower.settings for tower in USER_TOWERS.values())],  # noqa: UP007 # known at runtime only
        Field(discriminator="kind"),
        BeforeValidator(_with_kind),
    ]


class ItemTowerConfig(Settings):
    """Inputs and layers of DSSM's item tower (Huang et al. 2013).

    With `id` alone and no `hidden` layer an item's vector is its row of the id table. `features` names the
    prepared item features to read; `"all"` reads all of them. `id_dropout` is the share of items whose id
    training hides, so that features alone suffice for new items (DropoutNet, Volkovs et al. 2017).
    """

    id: bool = True
    id_dropout: Rate = 0.0
    features: FeatureNames = ()
    feature_width: Width = 32
    hidden: tuple[Width, ...] = ()
    dropout: Rate = 0.0

    @property
    def is_table(self) -> bool:
        """Whether an item's vector is its row of the id table."""
        return self.id and not self.features and not self.hidden

    @model_validator(mode="after")
    def _dropout_has_a_target(self) -> "ItemTowerConfig":
        if self.id_dropout and not (self.id and self.features):
            raise ValueError(
                f"item.id_dropout = {self.id_dropout} needs ids to drop and features to remain; set "
                "item.id = true and item.features, or item.id_dropout = 0"
            )
        if self.dropout and not self.hidden:
            raise ValueError(
                f"item.dropout = {self.dropout} has no hidden layer to act on; set item.hidden, or "
                "item.dropout = 0"
            )
        return self


class TowerConfig(Settings):
    """Both towers and the scoring between them; `dimension` is D, the width of their vectors."""

    dimension: Width = 64
    scoring: ScoringConfig = ScoringConfig()
    user: UserTowerConfig = PooledUserConfig()
    item: ItemTowerConfig = ItemTowerConfig()

    @model_validator(mode="after")
    def _user_fits(self) -> "TowerConfig":
        user = self.user
        if self.scoring.item_bias and self.dimension < 2:
            raise ValueError(
                "tower.dimension = 1 has no column left beside the one of scoring.item_bias; use at least 2"
            )
        if user.interests > 1 and not USER_TOWERS[user.kind].gives_interests:
            raise ValueError(
                f"user.interests = {user.interests} needs attention over the history, and user.kind = "
                f"{user.kind!r} has one vector a user; set user.kind = 'pooled' or 'transformer', or "
                "user.interests = 1"
            )
        if self.scoring.pairs and (user.interests > 1 or user.context == "none"):
            reason = (
                f"user.interests = {user.interests} gives several"
                if user.interests > 1
                else f"user.kind = {user.kind!r} reads none"
            )
            raise ValueError(
                f"scoring.pairs = {self.scoring.pairs} needs one vector of a history, and {reason}; set "
                "scoring.pairs = 0"
            )
        user.check_dimension(self.dimension)
        return self
