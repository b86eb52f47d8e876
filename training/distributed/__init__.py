"""The processes of one training: their numbers, and how they exchange tensors."""

__all__ = ["processes", "world"]
