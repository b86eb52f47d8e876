"""Preparation by Spark: reading, validation, and the sort of events, for logs that outgrow one machine."""

__all__ = ["read_by_spark", "session"]
