"""Databases as sources of events, items and users."""

__all__ = ["addresses", "results"]
