"""The ids of answers, and the log that keeps answers, so that outcomes can be joined with them."""

__all__ = ["entries", "files", "ids", "log"]
