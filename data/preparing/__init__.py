"""`turret data prepare`: from a source to a prepared folder."""

__all__ = ["append", "command", "describe", "options", "prepare"]
