"""A worker's place among the processes of a service, and its requests to the supervisor."""

import asyncio
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from turret.service.keys.keyring import Keyring
from turret.service.messages import Message, send
from turret.service.shared_state import SharedState, WorkerSlot
from turret.service.versions.gate import GateRequest, Passage, crashed, pass_gate
from turret.service.versions.record import Record

_OUTCOME_BYTES = 1_000_000
_SPARE_SECONDS = 2.0  # so that the supervisor's timeout comes first


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

    async def pass_gate(self, request: GateRequest, seconds: float) -> Passage:
        """Check a version in a child process of the supervisor, or in a thread if there is no supervisor.

        A process leaves the interpreter to the event loop and may crash; the supervisor kills it after
        `seconds`, or when this call is cancelled.
        """
        if self.channel is None:
            return await asyncio.to_thread(pass_gate, request)
        try:
            answer = self._request(self.channel, request)
        except OSError as error:
            return crashed(request, f"before its start ({error.strerror})")
        with answer:  # closing it makes the supervisor kill the check
            try:
                async with asyncio.timeout(seconds + _SPARE_SECONDS):
                    return _passage(request, await _read_all(answer))
            except TimeoutError:
                return crashed(request, f"without an outcome in {seconds:g} seconds")

    def _request(self, channel: socket.socket, request: GateRequest) -> socket.socket:
        """Request a check from the supervisor and return the socket of its outcome."""
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            try:
                send(channel, Message(gate=request), theirs)
            except OSError:
                ours.close()
                raise
        return ours


class _Outcome(BaseModel):
    crashed: str


async def _read_all(answer: socket.socket) -> bytes:
    """Read until the check and the supervisor have closed the socket, or _OUTCOME_BYTES."""
    loop, content = asyncio.get_running_loop(), b""
    while len(content) <= _OUTCOME_BYTES and (chunk := await loop.sock_recv(answer, 65536)):
        content += chunk
    return content


def _passage(request: GateRequest, content: bytes) -> Passage:
    """Parse the last line: the check's outcome, or the supervisor's report of its crash."""
    line = content.rpartition(b"\n")[2]
    try:
        return Passage.model_validate_json(line)
    except ValidationError:
        pass
    try:
        return crashed(request, _Outcome.model_validate_json(line).crashed)
    except ValidationError:
        return crashed(request, "without an outcome")
