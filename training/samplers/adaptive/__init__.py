"""Samplers whose probabilities follow the model's scores."""

__all__ = ["dense", "features", "ngram"]
