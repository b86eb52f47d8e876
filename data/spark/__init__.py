"""Preparation by Spark: executors run Turret's rules on pieces of a log, and sort its events."""

__all__ = ["engine", "reading", "session"]
