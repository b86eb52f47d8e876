"""Stores of users' histories and of changed items."""

__all__ = ["contract", "guarded", "registry"]
