"""The contract of a sampler, draws, and snapshots of item vectors."""

__all__ = ["contract", "draw", "settings", "snapshot"]
