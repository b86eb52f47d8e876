"""The comparison of a version with the live one: their answers to a request, and their overlap."""

__all__ = ["comparison"]
