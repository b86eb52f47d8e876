"""A client of the service: `Client`, and `AsyncClient` for asyncio; docs/client.md describes both."""

from turret.client.calls import Event, RecommendRequest, Route, UsedItem
from turret.client.client import AsyncClient, Client
from turret.client.errors import AnswerError, ClientError

__all__ = [
    "AnswerError",
    "AsyncClient",
    "Client",
    "ClientError",
    "Event",
    "RecommendRequest",
    "Route",
    "UsedItem",
]
