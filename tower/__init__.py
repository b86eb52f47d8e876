"""Towers and their frozen form: from ids to vectors, and from vectors to items."""

__all__ = [
    "cli",
    "commands",
    "config",
    "errors",
    "hostile",
    "kinds",
    "repeats",
    "retrieval",
    "slots",
    "times",
]
