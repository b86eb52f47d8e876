"""The group of commands of `turret data`, and the commands with the options of its settings."""

__all__ = ["arguments", "group"]
