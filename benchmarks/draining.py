"""What SIGTERM costs clients that keep their connections and don't know /readyz.

50 services of two workers, each ended under the load of 24 clients, with and without a time in which requests
are still accepted (`TURRET_DRAIN_DELAY`), and with clients that send often and seldom. `failed`: requests
without a complete answer, and connections that were neither made nor refused. `longest_exit_s`: seconds from
the end of that time to the end of the process.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.harness import Options, run
from benchmarks.processes import running_service
from benchmarks.serving_shop import served_shop

WORKERS, CLIENTS, ENDS, QUICK_ENDS = 2, 24, 50, 5
# Seconds of drain delay, and of a client's pause between two requests.
ROUNDS = ((0.3, 0.02), (0.0, 0.02), (0.3, 0.002), (0.0, 0.2))


def measure(options: Options) -> dict[str, Any]:
    """End services one after the other."""
    bundles = served_shop(2_000).bundles
    ends = [end(bundles, *one) for one in islice(cycle(ROUNDS), QUICK_ENDS if options.quick else ENDS)]
    failed: Counter[str] = sum((Counter(one["failed"]) for one in ends), Counter())
    return {
        "sigterms": len(ends),
        "answered": sum(one["answered"] for one in ends),
        "failed": failed.total(),
        "failures": failed,
        "longest_exit_s": max(one["exit_s"] for one in ends),
        "ends": ends,
    }


def end(bundles: Path, delay: float, pause: float) -> dict[str, Any]:
    """End one service under load."""
    os.environ["TURRET_DRAIN_DELAY"] = str(delay)
    with running_service(bundles, WORKERS) as service:
        port = service.url.rsplit(":", 1)[1]
        command = [sys.executable, "-m", "benchmarks.keepalive_clients", port, str(CLIENTS), str(pause)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as clients:
            assert clients.stdout is not None
            clients.stdout.readline()
            time.sleep(0.5)
            begun = time.monotonic()
            service.process.send_signal(signal.SIGTERM)
            status = service.process.wait(60)
            took = time.monotonic() - begun - delay
            report = json.loads(clients.stdout.readline())
    if status or report["left"] or set(report["statuses"]) != {"200"}:
        raise RuntimeError(f"the service ended with status {status}; its clients: {report}")
    return {
        **report,
        "delay_s": delay,
        "pause_s": pause,
        "exit_s": took,
        "answered": report["statuses"]["200"],
    }


if __name__ == "__main__":
    run(measure, needs_data=False)
