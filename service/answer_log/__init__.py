"""The log that keeps answers, so that outcomes can be joined with them."""

__all__ = ["entries", "files", "log"]
