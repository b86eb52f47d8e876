"""The records of a run: all that was measured on the way, and where it was made."""

__all__ = ["environment", "history", "loggers"]
