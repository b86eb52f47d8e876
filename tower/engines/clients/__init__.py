"""The engines: Redis search, and Milvus, each with its form of a filter."""

__all__ = ["milvus", "redis_search"]
