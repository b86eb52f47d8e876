"""Samplers whose probabilities follow the model's scores."""

__all__ = ["dense", "fourier_features", "mined", "ngram", "positive_features", "two_pass"]
