"""Stores in SQLite files: one of histories, and others of what members share."""

__all__ = ["shared"]
