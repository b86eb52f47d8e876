"""Ranking metrics over the whole catalog."""

__all__ = [
    "auc",
    "evaluation",
    "metrics",
    "per_user",
    "ranking",
    "reused_scores",
    "slices",
    "table",
    "top_rows",
]
