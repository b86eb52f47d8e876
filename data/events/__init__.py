"""Validated rows of a log: ids, times and weights checked, dropped rows counted."""

__all__ = ["buckets", "dropped_rows", "event_arrays", "event_files", "events", "ids", "labels", "read_events"]
