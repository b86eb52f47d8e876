"""Fields of items: columns, filters and the masks of allowed rows."""

__all__ = ["catalog", "columns", "conditions", "filters", "masks"]
