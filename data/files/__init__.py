"""Arrays on disk, atomic replacement of files and folders, locks, ordered maps with threads."""

__all__ = ["arrays", "exchange", "locks", "parallel", "staging"]
