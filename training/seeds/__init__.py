"""One experiment trained with several seeds: a folder of runs, and their mean and deviation."""

__all__ = ["commands", "runs", "summary"]
