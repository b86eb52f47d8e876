"""Many clients of one service, in a process of their own.

`python -m benchmarks.overload_clients PORT CLIENTS SECONDS WAITS`: each asks again as soon as it is answered;
one that is refused waits as long as Retry-After says if WAITS is 1. Prints what came of it as JSON.
"""

import asyncio
import json
import sys
import time
from typing import Any

import uvloop

BODY = json.dumps({"history": list(range(101, 121)), "k": 10}).encode()
ASK = (
    b"POST /v1/recommend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
)


class Client(asyncio.Protocol):
    """Asks, on one connection, and notes how long each answer took."""

    def __init__(self, waits: bool, counts: dict[str, Any]) -> None:
        self._waits = waits
        self._counts = counts
        self._received = b""
        self._asked = 0.0

    def connection_made(self, transport: Any) -> None:
        """Ask for the first time."""
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        """Note an answer once all of it has come."""
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator:
            return
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        if len(body) < length:
            return
        self._received = b""
        self._note(head)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it: the service ends no connection here."""
        self._counts["lost"] += 1

    def _note(self, head: bytes) -> None:
        seconds = time.perf_counter() - self._asked
        if b" 200 " in head[:14]:
            self._counts["ok"] += 1
            self._ask()
            return
        self._counts["refused"].append(seconds)
        wait = int(head.lower().split(b"retry-after: ")[1].split(b"\r\n")[0])
        assert b" 503 " in head[:14], head
        if self._waits:
            asyncio.get_running_loop().call_later(wait, self._ask)
        else:
            self._ask()

    def _ask(self) -> None:
        self._asked = time.perf_counter()
        self._transport.write(ASK)


async def crowd(port: int, clients: int, seconds: float, waits: bool) -> dict[str, Any]:
    """Let the clients ask for some seconds; those of the first half second don't count."""
    counts: dict[str, Any] = {"ok": 0, "refused": [], "lost": 0}
    loop = asyncio.get_running_loop()
    for _ in range(clients):
        await loop.create_connection(lambda: Client(waits, counts), "127.0.0.1", port)
    await asyncio.sleep(0.5)
    counts.update(ok=0, refused=[])
    began = time.perf_counter()
    print("begun", flush=True)
    await asyncio.sleep(seconds)
    refused = sorted(counts["refused"]) or [0.0]
    return {
        "ok": counts["ok"],
        "seconds": time.perf_counter() - began,
        "refused": len(counts["refused"]),
        "refused_median_s": refused[len(refused) // 2],
        "lost": counts["lost"],
    }


if __name__ == "__main__":
    port, clients, seconds, waits = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(
            json.dumps(runner.run(crowd(int(port), int(clients), float(seconds), waits == "1"))), flush=True
        )
