"""Messages from a worker to the supervisor: small, validated JSON datagrams."""

import os
import socket
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from turret.service.errors import ServiceError
from turret.service.versions.gate import GateRequest

MESSAGE_BYTES = 65536
_TEXT = 2000  # characters


def _shortened(text: str) -> str:
    return text if len(text) <= _TEXT else text[: _TEXT - 3] + "..."


class Message(BaseModel):
    """One of: the worker is ready (with a version or none), can't serve, or requests a check.

    A request for a check brings the socket for its outcome.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ready: str | None = None
    failed: Annotated[str, AfterValidator(_shortened)] | None = None
    gate: GateRequest | None = None


def send(channel: socket.socket, message: Message, *sockets: socket.socket) -> None:
    """Send a message with at most one socket, without blocking. Raises OSError."""
    content = message.model_dump_json(exclude_unset=True).encode()
    channel.setblocking(False)
    socket.send_fds(channel, [content], [attached.fileno() for attached in sockets])


def receive(channel: socket.socket) -> tuple[Message, socket.socket | None]:
    """Receive the next message and its socket, without blocking.

    Raises OSError when there is none, and ServiceError for an invalid message, whose sockets are closed.
    """
    channel.setblocking(False)
    content, descriptors, flags, _ = socket.recv_fds(channel, MESSAGE_BYTES, 1)
    try:
        if flags & socket.MSG_TRUNC:
            raise ServiceError(f"more than {MESSAGE_BYTES} bytes")
        message = Message.model_validate_json(content)
        return message, socket.socket(fileno=descriptors[0]) if descriptors else None
    except (ServiceError, ValidationError, OSError) as error:
        for descriptor in descriptors:
            os.close(descriptor)
        raise ServiceError(str(error).splitlines()[0]) from None
