"""The records of a run: its measurements, and the environment in which it was trained."""

__all__ = ["environment", "history", "loggers"]
