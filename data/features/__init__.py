"""Features of items and users: kinds, encoded values, and columns."""

__all__ = ["columns", "feature", "texts"]
