"""The user and item towers, and the model of both."""

__all__ = ["alike", "config", "model", "query", "user"]
