"""Messages from a worker to the supervisor: small, validated JSON datagrams."""

import socket
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from turret.service.errors import ServiceError

MESSAGE_BYTES = 65536
_TEXT = 2000  # characters


def _shortened(text: str) -> str:
    return text if len(text) <= _TEXT else text[: _TEXT - 3] + "..."


class Message(BaseModel):
    """One of: the worker is ready (with a version or none), or can't serve."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ready: str | None = None
    failed: Annotated[str, AfterValidator(_shortened)] | None = None


def send(channel: socket.socket, message: Message) -> None:
    """Send a message without blocking. Raises OSError."""
    channel.setblocking(False)
    channel.send(message.model_dump_json(exclude_unset=True).encode())


def receive(channel: socket.socket) -> Message:
    """Receive the next message without blocking.

    Raises OSError when there is none, and ServiceError for an invalid message.
    """
    channel.setblocking(False)
    content = channel.recv(MESSAGE_BYTES + 1)
    if len(content) > MESSAGE_BYTES:
        raise ServiceError(f"more than {MESSAGE_BYTES} bytes")
    try:
        return Message.model_validate_json(content)
    except ValidationError as error:
        raise ServiceError(str(error).splitlines()[0]) from None
