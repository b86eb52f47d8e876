"""From requests to ranked items."""

__all__ = ["answers", "comparison", "kinds", "item_view", "query", "recommender"]
