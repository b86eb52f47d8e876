"""Ranking metrics over the whole catalog."""

__all__ = [
    "complements",
    "evaluation",
    "metrics",
    "per_user",
    "ranking",
    "repeats",
    "seen",
    "table",
    "top_rows",
]
