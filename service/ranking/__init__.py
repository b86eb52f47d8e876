"""From requests to ranked items."""

__all__ = ["answers", "candidate", "exploration", "item_view", "query", "recommender"]
