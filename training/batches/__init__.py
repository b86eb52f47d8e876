"""Examples of prepared data as batches of tensors."""

__all__ = ["batches", "event_times", "spans"]
