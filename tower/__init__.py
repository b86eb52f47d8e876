"""Towers and their frozen form: from ids to vectors, and from vectors to items."""

__all__ = [
    "cli",
    "commands",
    "config",
    "counted_kinds",
    "errors",
    "hostile",
    "repeats",
    "retrieval",
    "slots",
    "times",
]
