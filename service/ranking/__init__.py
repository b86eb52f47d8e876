"""From requests to ranked items."""

__all__ = ["answer_record", "answers", "query", "recommender"]
