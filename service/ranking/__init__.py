"""From requests to ranked items."""

__all__ = ["answer_record", "answers", "item_view", "query", "recommender"]
