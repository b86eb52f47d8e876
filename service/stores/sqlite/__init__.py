"""Stores in SQLite files: one of histories, and beside it one of items."""

__all__ = ["records"]
