"""The contract of a sampler with its draws, settings, and snapshots of item vectors."""

__all__ = ["contract", "settings", "snapshot"]
