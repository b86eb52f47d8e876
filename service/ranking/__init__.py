"""From requests to ranked items."""

__all__ = ["answers", "comparison", "item_view", "query", "recommender"]
