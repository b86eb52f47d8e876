"""Ten times the load that a service can carry: the service of admitted and of refused clients.

One worker with a queue of 32 and a shop of 2,000 items meets 24 clients, which it can carry, and then 400, in
turn, so that other load of the machine meets both. Each asks again as soon as it is answered; clients that
are refused wait for a second, as Retry-After says, or ask again at once.

`served_share`: recommendations for each second of the worker's processor time in the best flood, over those
of the best round that it can carry. `refused_median_ms`: how soon a client is refused, in the best flood.
`refusals_a_client_s`: refusals of one client in a second, in the worst flood. `grown_mb`: memory of the
worker after the last flood over that after the first round. `lost` counts connections that ended, and
`refused_after` refusals in rounds that it can carry, a second after a flood.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Options, run
from benchmarks.load import Load, Outcome, run_load
from benchmarks.processes import family, running_service
from benchmarks.serving_shop import served_shop

ITEMS, QUEUE, CAPACITY_CLIENTS, CROWD = 2_000, 32, 24, 400
SECONDS, ROUNDS = 2.0, 3
RETRY_AFTER = 1.0
# Seconds until all are served again: requests of clients that have gone are still under way.
AFTER_FLOOD = 1.0


@dataclass(frozen=True)
class Cost:
    """The answers to some clients, and their cost for the worker."""

    outcome: Outcome
    processor_seconds: float
    resident: int

    @property
    def served(self) -> float:
        """Recommendations a second of the worker's processor time."""
        return float(self.outcome.good.sum()) / self.processor_seconds

    @property
    def refused(self) -> int:
        """The number of refusals."""
        return int((self.outcome.status == 503).sum())

    @property
    def refused_median_s(self) -> float:
        """The median seconds to a refusal; 0 without one."""
        return float(np.median(self.outcome.seconds[self.outcome.status == 503])) if self.refused else 0.0

    @property
    def lost(self) -> int:
        """The number of requests without an answer, or with another one."""
        return len(self.outcome.status) - self.refused - int(self.outcome.good.sum())


def measure(options: Options) -> dict[str, Any]:
    """Flood a service in both ways."""
    rounds = 1 if options.quick else ROUNDS
    return {"waiting": flood(rounds, RETRY_AFTER), "impatient": flood(rounds, 0.0)}


def flood(rounds: int, pause: float) -> dict[str, float]:
    """Let a service meet both loads in turn."""
    peaks, floods = [], []
    shop = served_shop(ITEMS)
    with running_service(shop.bundles, queue_limit=str(QUEUE)) as service:
        _, worker = family(service.process.pid)

        def cost(clients: int) -> Cost:
            load = Load(service.url, "/v1/recommend", shop.bodies, clients, SECONDS, refused_pause=pause)
            before = processor_seconds(worker)
            outcome = run_load(load)
            pages = int(Path(f"/proc/{worker}/statm").read_text().split()[1])
            return Cost(outcome, processor_seconds(worker) - before, pages * os.sysconf("SC_PAGE_SIZE"))

        cost(CAPACITY_CLIENTS)  # warm
        for _ in range(rounds):
            peaks.append(cost(CAPACITY_CLIENTS))
            floods.append(cost(CROWD))
            time.sleep(AFTER_FLOOD)
        after = cost(CAPACITY_CLIENTS)
    return {
        "served_share": max(one.served for one in floods) / max(one.served for one in peaks),
        "refused_median_ms": 1_000 * min(one.refused_median_s for one in floods),
        "refusals_a_client_s": max(one.refused / CROWD / SECONDS for one in floods),
        "refused": sum(one.refused for one in floods),
        "refused_after": sum(one.refused for one in (*peaks, after)),
        "lost": sum(one.lost for one in (*peaks, *floods, after)),
        "grown_mb": (floods[-1].resident - peaks[0].resident) / 1e6,
    }


def processor_seconds(pid: int) -> float:
    """Of all threads, in nanoseconds: the ticks of /proc/PID/stat are too coarse for a round."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in threads) / 1e9


if __name__ == "__main__":
    run(measure, needs_data=False)
