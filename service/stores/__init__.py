"""Stores of users' histories and of changed items."""

__all__ = ["breaker", "checks", "contract", "reading", "registry", "window"]
