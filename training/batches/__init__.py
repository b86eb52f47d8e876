"""Examples of prepared data as batches of tensors."""

__all__ = ["baskets", "batches", "event_times", "spans"]
