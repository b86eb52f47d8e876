"""The comparison of a version with the live one: answers side by side, overlap, catalogs."""

__all__ = ["background", "chosen", "comparison", "opening"]
