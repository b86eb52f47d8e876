"""Samplers whose probabilities do not depend on the model."""

__all__ = ["alias", "bernoulli", "bigram", "complement", "given", "popularity"]
