"""From requests to ranked items."""

__all__ = ["answers", "item_view", "query", "recommender"]
