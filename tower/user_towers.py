"""The user tower that an experiment asks for."""

from data.features import Features
from tower.config import PooledUserConfig, TowerConfig
from tower.pooled_user import PooledUserTower
from tower.transformer_user import TransformerUserTower
from tower.user import UserTower


def build_user_tower(config: TowerConfig, prepared: Features) -> UserTower:
    """A fresh user tower by `config.user`. Raises TowerError for a feature that isn't prepared."""
    if isinstance(config.user, PooledUserConfig):
        return PooledUserTower(config.user, config.dimension, prepared)
    return TransformerUserTower(config.user, config.dimension, prepared)
