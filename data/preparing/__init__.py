"""`turret data prepare`: from a source to a prepared folder."""

__all__ = ["append", "describe", "options", "prepare"]
