"""Events sorted by user and time, filtered, and split into parts."""

__all__ = ["accounts", "duplicates", "histories", "negatives", "partition"]
