"""From requests to ranked items."""

__all__ = ["answer_record", "item_view", "query", "recommender"]
