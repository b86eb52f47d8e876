"""API keys: their file, its commands, and the keys of a running service."""

__all__ = ["cli", "keys"]
