"""A bundle: opened and checked, or published."""

__all__ = ["bundle", "golden", "item_golden", "publish", "query_vectors", "reindex"]
