"""One HTTP call, on a kept connection or on its own."""

import json
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any


@dataclass(frozen=True)
class Answer:
    """Status, headers in lower case and JSON value of a response."""

    status: int
    headers: dict[str, str]
    value: Any


def ask(
    connection: HTTPConnection, method: str, path: str, body: Any = None, key: str | None = None
) -> Answer:
    """Send a request on a connection, which stays open if the server keeps it."""
    content = None if body is None else json.dumps(body)
    sent = {"Content-Type": "application/json"} if content else {}
    connection.request(method, path, content, sent | ({"Authorization": f"Bearer {key}"} if key else {}))
    response = connection.getresponse()
    text = response.read()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, json.loads(text) if text else None)


def call(host: str, port: int, method: str, path: str, body: Any = None, key: str | None = None) -> Answer:
    """Send a request on a connection of its own."""
    connection = HTTPConnection(host, port, timeout=15)
    try:
        return ask(connection, method, path, body, key)
    finally:
        connection.close()
