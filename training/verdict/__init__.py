"""The verdict of an evaluation: findings in plain sentences, computed from figures."""

__all__ = ["order", "verdict"]
