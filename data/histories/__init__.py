"""Events sorted by user and time, filtered, and split into parts."""

__all__ = ["duplicates", "histories", "negatives", "partition"]
