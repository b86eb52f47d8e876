"""A bundle: opened and checked, or published."""

__all__ = ["bundle", "cost", "golden", "item_golden", "publish", "query_vectors", "reindex"]
