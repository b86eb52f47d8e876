"""A trained run looked into: its evaluation, its curves, and the items that it recommends."""

__all__ = ["compared", "curves", "evaluations", "examples", "exposure", "item_names", "nearest", "rankings"]
