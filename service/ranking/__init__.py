"""From requests to ranked items."""

__all__ = ["answers", "candidate", "item_view", "query", "recommender"]
