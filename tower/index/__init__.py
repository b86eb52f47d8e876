"""Search by inner product: exact and approximate indexes, and the planner between them."""

__all__ = ["approximate", "index", "opening", "planner"]
