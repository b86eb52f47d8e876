"""Samplers that take the positives of the batch, and estimates of their frequency."""

__all__ = ["frequency", "in_batch"]
