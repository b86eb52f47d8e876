"""What is popular now: decayed counts of the events that the store receives."""

__all__ = ["counts", "popular_now"]
