"""The registry of user towers: ours, and those that installed packages add.

A package adds one by an entry point of the group `turret.user_towers` that names a `UserTowerKind`.
"""

from turret.data.extras import registry
from turret.data.features import Features
from turret.tower.errors import TowerError
from turret.tower.towers.attentive import AttentiveUserConfig, AttentiveUserTower
from turret.tower.towers.gru import GruUserConfig, GruUserTower
from turret.tower.towers.pooled import PooledUserConfig, PooledUserTower
from turret.tower.towers.query import QueryConfig, QueryTower
from turret.tower.towers.transformer import TransformerUserConfig, TransformerUserTower
from turret.tower.towers.user import UserTower, UserTowerKind, UserTowerSettings

GROUP = "turret.user_towers"
OURS = (
    UserTowerKind(PooledUserConfig, PooledUserTower),
    UserTowerKind(AttentiveUserConfig, AttentiveUserTower),
    UserTowerKind(GruUserConfig, GruUserTower),
    UserTowerKind(TransformerUserConfig, TransformerUserTower),
    UserTowerKind(QueryConfig, QueryTower),
)


USER_TOWERS = registry(OURS, GROUP, UserTowerKind, TowerError)


def build_user_tower(config: UserTowerSettings, dimension: int, prepared: Features) -> UserTower:
    """A fresh tower of the kind that `config` names. Raises TowerError for a feature that isn't prepared."""
    return USER_TOWERS[config.kind].build(config, dimension, prepared)
