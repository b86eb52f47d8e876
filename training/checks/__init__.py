"""Contracts of losses and samplers as functions, for the tests of a package that adds a kind."""

__all__ = ["holds", "losses", "samplers"]
