"""Stores of users' histories and of changed items."""

__all__ = ["breaker", "contract", "reading", "registry", "window"]
