"""The processes of one training: their numbers, and how they exchange tensors."""

__all__ = ["joining", "launch", "meeting", "processes", "shards", "split_table", "tensor_files", "world"]
