"""The walks of a reader through the service: the functions that a request and an activation enter."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from uvicorn.server import ServerState

from tests.support.members import Members
from tests.support.service_app import settings_of
from tests.support.walk import Walk, walked
from turret.service.http.app import Application, create_app
from turret.service.process.server import config_of
from turret.service.settings import Settings
from turret.service.versions.gate_report import Check, GateReport, GateRequest


class Wire(asyncio.Transport):
    """The transport of a connection that keeps the written bytes."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 8000)})
        self.written = b""
        self.answered = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)
        head, _, body = self.written.partition(b"\r\n\r\n")
        lengths = [int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"content-length: ")]
        if [len(body)] == lengths:
            self.answered.set()

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def walk_of(app: Application, settings: Settings, body: dict[str, Any]) -> tuple[dict[str, Any], Walk]:
    """The answer to a recommendation, and the shortest of 20 walks from the bytes of a socket to bytes.

    The time of the first ones is measured, and others meet what a service does once in a while.
    """
    config = config_of(settings, app)
    config.load()
    protocol_class: Any = config.http_protocol_class
    text = orjson.dumps(body)
    lines = ("POST /v1/recommend HTTP/1.1", "Host: t", "Content-Type: application/json")
    head = "\r\n".join((*lines, f"Content-Length: {len(text)}", "", ""))
    walks = []
    async with app.router.lifespan_context(app):
        for _ in range(20):
            wire, protocol = Wire(), protocol_class(config, ServerState(), {})
            protocol.connection_made(wire)
            await asyncio.sleep(0)
            with walked() as walk:
                protocol.data_received(head.encode() + text)
                await wire.answered.wait()
            walks.append(walk)
    assert wire.written.startswith(b"HTTP/1.1 200"), wire.written
    return orjson.loads(wire.written.partition(b"\r\n\r\n")[2]), min(walks, key=lambda walk: walk.size)


async def test_a_request_is_read_in_some_sixty_functions(bundles: Path) -> None:
    settings = settings_of(bundles, recall_sample=0, drift_sample=0)
    answer, walk = await walk_of(create_app(settings), settings, {"history": [105, 107], "k": 5})
    assert [item["source"] for item in answer["items"]] == ["towers"] * 5
    assert np.all(np.array(walk.size) <= (63, 21, 10)), str(walk)


async def test_an_activation_is_read_in_fifty_functions(members: Members) -> None:
    """Without the inside of the gate, of the threads that open files, and HTTP.

    Of several activations the shortest counts: others meet the turns of the member that follows the record.
    """
    member = await members.join()

    async def passed(request: GateRequest) -> GateReport:
        check = Check(name="overlap", passed=True, words="")
        return GateReport(version=request.version, time="", forced=False, checks=(check,))

    member.activator._run_gate = passed
    walks = []
    for version in ("v2", "v3", "v2", "v3", "v2", "v3"):
        with walked() as walk:
            await member.activate(version)
        assert member.version == version
        walks.append(walk)
    walk = min(walks[1:], key=lambda walk: walk.size)
    assert len(walk.functions) <= 50, str(walk)
