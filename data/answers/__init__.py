"""The answer log: the form of its ids and files, its readers, and the outcomes of its answers."""

__all__ = ["events", "examination", "files", "form", "log", "outcomes", "places"]
