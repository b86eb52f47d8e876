"""Search by inner product: exact and approximate indexes, and the planner between them."""

__all__ = ["approximate", "faiss_calls", "index", "planner"]
