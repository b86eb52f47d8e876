"""Stores of users' histories and of changed items."""

__all__ = ["checks", "contract", "guarded", "registry"]
