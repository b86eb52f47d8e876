"""Ten times the load that a service can carry: the service of admitted and of refused clients.

One worker with a queue of 32 and a shop of 2,000 items meets 24 clients, which it can carry, and then 400, in
turn, so that what else the machine does meets both. Each asks again as soon as it is answered; clients that
are refused wait as long as Retry-After says, or ask again at once.

`served_share`: recommendations for each second of the worker's processor time in the best flood, over those
of the best round that it can carry. `refused_median_ms`: how soon a client is refused, in the best flood.
`refusals_a_client_s`: refusals of one client in a second, in the worst flood. `grown_mb`: memory of the
worker after the last flood over that after the first round. `lost` counts connections that ended, and
`refused_after` refusals in rounds that it can carry, a second after a flood.
"""

import asyncio
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from benchmarks.abuse_attacks import Address, post
from benchmarks.harness import Options, run
from benchmarks.processes import alone, family, running_service
from benchmarks.serving_shop import served_shop

ITEMS, QUEUE, CAPACITY_CLIENTS, CROWD = 2_000, 32, 24, 400
SECONDS, ROUNDS = 2.0, 3
# Seconds until all are served again: requests of clients that have gone are still under way.
AFTER_FLOOD = 1.0


@dataclass
class Load:
    """The answers to some clients, and their cost for the worker."""

    ok: int = 0
    refused: list[float] = field(default_factory=list)  # seconds until each refusal
    lost: int = 0
    processor_seconds: float = 0.0
    resident: int = 0

    @property
    def served(self) -> float:
        """Recommendations a second of the worker's processor time."""
        return self.ok / self.processor_seconds


def measure(options: Options) -> dict[str, Any]:
    """Flood a service in both ways."""
    rounds = 1 if options.quick else ROUNDS
    return {clients: flood(rounds, clients == "waiting") for clients in ("waiting", "impatient")}


def flood(rounds: int, waits: bool) -> dict[str, float]:
    """Let a service meet both loads in turn."""
    peaks, floods = [], []
    shop = served_shop(ITEMS)
    request = post("/v1/recommend", shop.bodies[0].encode())
    with running_service(shop.bundles, queue_limit=str(QUEUE)) as service:
        _, worker = family(service.process.pid)
        address = "127.0.0.1", int(service.url.rsplit(":", 1)[1])

        def load(clients: int, waits: bool = True) -> Load:
            return alone(loaded, address, request, worker, clients, waits)

        load(CAPACITY_CLIENTS)  # warm
        for _ in range(rounds):
            peaks.append(load(CAPACITY_CLIENTS))
            floods.append(load(CROWD, waits))
            time.sleep(AFTER_FLOOD)
        after = load(CAPACITY_CLIENTS)
    return {
        "served_share": max(one.served for one in floods) / max(one.served for one in peaks),
        "refused_median_ms": 1_000 * min(median(one.refused or [0.0]) for one in floods),
        "refusals_a_client_s": max(len(one.refused) / CROWD / SECONDS for one in floods),
        "refused": sum(len(one.refused) for one in floods),
        "refused_after": sum(len(one.refused) for one in (*peaks, after)),
        "lost": sum(one.lost for one in (*peaks, *floods, after)),
        "grown_mb": (floods[-1].resident - peaks[0].resident) / 1e6,
    }


class Client(asyncio.Protocol):
    """Sends a request again and again on one connection, and counts in `load`."""

    def __init__(self, request: bytes, waits: bool, load: Load) -> None:
        self._request, self._waits, self.load = request, waits, load
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        """Ask for the first time."""
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        """Count an answer once all of it has come, and ask again."""
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator or len(body) < int(_header(head, b"content-length")):
            return
        self._received = b""
        if head[9:12] == b"200":
            self.load.ok += 1
            self._ask()
            return
        assert head[9:12] == b"503", head
        self.load.refused.append(time.perf_counter() - self._asked)
        wait = int(_header(head, b"retry-after")) if self._waits else 0
        asyncio.get_running_loop().call_later(wait, self._ask)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it: the service ends no connection here."""
        self.load.lost += 1

    def _ask(self) -> None:
        self._asked = time.perf_counter()
        self._transport.write(self._request)


def _header(head: bytes, name: bytes) -> bytes:
    return head.lower().split(name + b": ")[1].split(b"\r\n")[0]


def loaded(address: Address, request: bytes, worker: int, clients: int, waits: bool) -> Load:
    """Let the clients ask for some seconds; those of the first half second don't count."""

    async def ask() -> Load:
        load, loop = Load(), asyncio.get_running_loop()
        for _ in range(clients):
            await loop.create_connection(lambda: Client(request, waits, load), *address)
        await asyncio.sleep(0.5)
        load.ok, load.refused = 0, []
        before = processor_seconds(worker)
        await asyncio.sleep(SECONDS)
        load.processor_seconds = processor_seconds(worker) - before
        pages = int(Path(f"/proc/{worker}/statm").read_text().split()[1])
        load.resident = pages * os.sysconf("SC_PAGE_SIZE")
        # Connections that close with this process are not lost.
        return Load(load.ok, load.refused, load.lost, load.processor_seconds, load.resident)

    return uvloop.run(ask())


def processor_seconds(pid: int) -> float:
    """Of all threads, in nanoseconds: the ticks of /proc/PID/stat are too coarse for a round."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in threads) / 1e9


if __name__ == "__main__":
    run(measure, needs_data=False)
