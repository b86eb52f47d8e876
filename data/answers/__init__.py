"""The answer log: the form of its ids and files, and its reader."""

__all__ = ["examination", "form", "log", "places"]
