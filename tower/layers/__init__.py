"""Layers that several towers share."""

__all__ = ["feature_layers", "packed", "pair_bias", "windows"]
