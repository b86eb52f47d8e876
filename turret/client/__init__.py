"""A client of the service: `Client`, and `AsyncClient` for asyncio; docs/client.md describes both."""

from turret.client.client import AsyncClient, Client
from turret.client.errors import AnswerError, ClientError
from turret.client.requests import Event, RecommendRequest, Route, UsedItem

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
