"""Validated rows of a log: ids, times and weights checked, dropped rows counted."""

__all__ = ["contexts", "dropped_rows", "event_arrays", "events", "funnel", "ids", "labels", "log", "sessions"]
