"""Ten times the load that a service can carry: the service of admitted and of refused clients.

One worker with a queue of 32 and a shop of a thousand items meets 24 clients, which it can carry, and then
400, in turn, so that what else the machine does meets both. Clients that are refused wait as long as
Retry-After says, or ask again at once.

`served_share`: recommendations for each second of the worker's processor time in the best flood, over those
of the best round that it can carry. `refused_median_ms`: how soon a client is refused, in the best flood.
`refusals_a_client_s`: refusals of one client in a second, in the worst flood. `grown_mb`: memory of the
worker after the last flood over that after the first round. `lost` counts connections that ended, and
`refused_after` refusals in rounds that it can carry, a second after a flood.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.abuse_attacks.shop import publish_shop
from benchmarks.harness import Options, finish, read_options
from benchmarks.processes import Running, family, running_service

QUEUE, CAPACITY_CLIENTS, CROWD = 32, 24, 400
SECONDS, ROUNDS = 2.0, 3
# Seconds until all are served again: requests of clients that have gone are still under way.
AFTER_FLOOD = 1.0


@dataclass(frozen=True)
class Load:
    """What some clients were told, and what it cost the worker."""

    told: dict[str, Any]
    processor_seconds: float
    resident: int

    @property
    def served(self) -> float:
        """Recommendations a second of the worker's processor time."""
        return float(self.told["ok"]) / self.processor_seconds


def main() -> None:
    """Run the benchmark."""
    options = read_options(__doc__, needs_data=False)
    figures = measure(options)
    Console().print_json(json.dumps(figures))
    finish("overload", options, figures)


def measure(options: Options) -> dict[str, Any]:
    """Flood a service in both ways."""
    os.environ["TURRET_QUEUE_LIMIT"] = str(QUEUE)
    rounds = 1 if options.quick else ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        bundles = Path(folder) / "bundles"
        publish_shop(bundles)
        return {clients: flood(bundles, rounds, clients == "waiting") for clients in ("waiting", "impatient")}


def flood(bundles: Path, rounds: int, waits: bool) -> dict[str, float]:
    """Let a service meet both loads in turn."""
    peaks, floods = [], []
    with running_service(bundles) as service:
        _, worker = family(service.process.pid)
        load(service, worker, CAPACITY_CLIENTS)  # warm
        for _ in range(rounds):
            peaks.append(load(service, worker, CAPACITY_CLIENTS))
            floods.append(load(service, worker, CROWD, waits))
            time.sleep(AFTER_FLOOD)
        after = load(service, worker, CAPACITY_CLIENTS)
    return {
        "served_share": max(one.served for one in floods) / max(one.served for one in peaks),
        "refused_median_ms": 1_000 * min(one.told["refused_median_s"] for one in floods),
        "refusals_a_client_s": max(one.told["refused"] / CROWD / one.told["seconds"] for one in floods),
        "refused": sum(one.told["refused"] for one in floods),
        "refused_after": sum(one.told["refused"] for one in (*peaks, after)),
        "lost": sum(one.told["lost"] for one in (*peaks, *floods, after)),
        "grown_mb": (floods[-1].resident - peaks[0].resident) / 1e6,
    }


def load(service: Running, worker: int, clients: int, waits: bool = True) -> Load:
    """Let clients ask for some seconds."""
    port = service.url.rsplit(":", 1)[1]
    words = [port, str(clients), str(SECONDS), str(int(waits))]
    command = [sys.executable, "-m", "benchmarks.overload_clients", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as crowd:
        assert crowd.stdout is not None
        if crowd.stdout.readline() != "begun\n":
            raise RuntimeError("the clients didn't start")
        before = processor_seconds(worker)
        told = json.loads(crowd.stdout.readline())
        used = processor_seconds(worker) - before
    pages = int(Path(f"/proc/{worker}/statm").read_text().split()[1])
    return Load(told, used, pages * os.sysconf("SC_PAGE_SIZE"))


def processor_seconds(pid: int) -> float:
    """Of all threads, in nanoseconds: the ticks of /proc/PID/stat are too coarse for a round."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in threads) / 1e9


if __name__ == "__main__":
    main()
