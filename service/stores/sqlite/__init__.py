"""Stores in SQLite files: one of histories, one of items, and one of the members' record."""

__all__ = ["shared"]
