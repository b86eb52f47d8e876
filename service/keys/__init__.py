"""API keys: their file, its commands, and the layer that admits requests by key, scope and rate."""

__all__ = ["access", "cli", "key_file", "keyring", "keys"]
