"""The catalog for people who look at it: search by text, a summary of its fields, and the map."""

__all__ = ["catalog"]
