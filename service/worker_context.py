"""A worker's place among the processes of a service, and its messages to the supervisor."""

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turret.service.keys.keyring import Keyring
from turret.service.messages import Message, send
from turret.service.shared_state import SharedState, WorkerSlot


@dataclass(frozen=True)
class WorkerContext:
    """The shared state, this worker's number, and its channel to the supervisor (None: no supervisor).

    `metrics_folder` holds the metrics of all workers (None: there is only this one), `keyring` the keys that
    the supervisor has read (None: read them again). `replica` names this service among its replicas; empty if
    it can have none.
    """

    shared_state: SharedState
    number: int = 0
    channel: socket.socket | None = None
    metrics_folder: Path | None = None
    keyring: Keyring | None = None
    replica: str = ""

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
