"""Vector engines that run beside the service: Redis search and Milvus behind one contract."""

__all__ = ["access", "circuit", "engine", "fields", "publishing"]
