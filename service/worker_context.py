"""A worker's place among the processes of a service, and its messages to the supervisor.

A message is a small, validated JSON datagram.
"""

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from turret.service.errors import ServiceError
from turret.service.keys.keyring import Keyring
from turret.service.shared_state import SharedState, WorkerSlot
from turret.service.versions.record import Record

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


@dataclass(frozen=True)
class WorkerContext:
    """The shared state, this worker's number, and its channel to the supervisor (None: no supervisor).

    `metrics_folder` holds the metrics of all workers (None: there is only this one), `keyring` the keys that
    the supervisor has read (None: read them again). `host` names this service among its replicas, `records`
    is the file of the record that its workers share where no store has one, `record` the first one that this
    worker has read; without a supervisor it makes them itself.
    """

    shared_state: SharedState
    number: int = 0
    channel: socket.socket | None = None
    metrics_folder: Path | None = None
    keyring: Keyring | None = None
    host: str = "local"
    records: Path | None = None
    record: Record | None = None

    @property
    def worker_slot(self) -> WorkerSlot:
        """This worker's numbers in the shared state."""
        return self.shared_state.slots[self.number]

    def send(self, **message: Any) -> bool:
        """Send a `Message` to the supervisor, if there is one; False if the channel is full."""
        if self.channel is not None:
            try:
                send(self.channel, Message(**message))
            except OSError:
                return False
        return True
