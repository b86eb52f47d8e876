"""`turret tune`: a search over the settings of an experiment."""

__all__ = ["study"]
