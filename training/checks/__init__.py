"""Contracts of losses, samplers and user towers as functions, for the tests of a package that adds a kind."""

__all__ = ["holds", "losses", "samplers", "user_towers"]
