"""Samplers whose probabilities do not depend on the model."""

__all__ = ["alias", "complement", "popularity"]
