"""From requests to ranked items."""

__all__ = ["answers", "comparison", "item_view", "kinds", "query", "recommender"]
