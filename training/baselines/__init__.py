"""Rankers without training steps that a model has to beat; each is one entry of the registry."""

__all__ = ["interactions", "pair_models", "registry"]
