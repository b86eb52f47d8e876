"""Watching a service from a process of its own: its memory, how long `/livez` takes, an honest client.

Memory is the anonymous resident pages (`RssAnon`) of its processes together, without those that a child has
from the supervisor by its fork. Pages of files are left out, as the system drops them when it needs room. The
kernel counts them, so that reading them every 25 ms costs the service nothing; peaks between two readings
show in `VmHWM`. `/livez` is asked on eight connections that are kept, and on new ones. This process has a
higher priority than all others, where it may.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.abuse_attacks import Address, head, read_answer
from benchmarks.processes import family

LONGEST_WAIT = 30.0  # seconds until a probe is given up
_LOOK_SECONDS, _IDLE_SECONDS = 0.025, 0.5
_LIVEZ = head("GET", "/livez")


class Probe(NamedTuple):
    """A question of this process: its kind, seconds and status (0: lost).

    `starved`: seconds in which a worker was ready to run and had no core, which the machine adds.
    """

    name: str
    seconds: float
    status: int
    starved: float


@contextmanager
def watched(pid: int, address: Address, honest: bytes) -> Iterator[dict[str, Any]]:
    """Watch a service whose supervisor is `pid`; the figures are there after the end."""
    figures: dict[str, Any] = {}
    command = [sys.executable, "-m", "benchmarks.abuse_monitor"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([pid, address, honest.decode()]) + "\n")
        process.stdin.flush()
        if process.stdout.readline() != "watching\n":
            raise RuntimeError("the watching process failed; its error is above")
        try:
            yield figures
        finally:
            told, _ = process.communicate("end\n", timeout=2 * LONGEST_WAIT)
            figures |= json.loads(told)


class _Watch:
    def __init__(self, pid: int, address: Address, honest: bytes) -> None:
        self._pid, self._address, self._honest = pid, address, honest
        self._workers = [one for one in family(pid) if one != pid]
        self._probes: list[Probe] = []
        self._held: list[int] = []
        self._over = False

    async def run(self) -> dict[str, Any]:
        """Watch until a line is read."""
        looking = asyncio.create_task(self._look())
        await asyncio.sleep(_IDLE_SECONDS)
        idle, self._held = median(self._held), []
        before = self._marks()
        tasks = [
            *(asyncio.create_task(self._ask("livez", _LIVEZ, 0.04, is_kept=True)) for _ in range(8)),
            *(asyncio.create_task(self._ask("honest", self._honest, 0.1, is_kept=True)) for _ in range(2)),
            asyncio.create_task(self._ask("livez_new", _LIVEZ, 0.02)),
            asyncio.create_task(self._ask("honest_new", self._honest, 0.1)),
        ]
        print("watching", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        self._over = True
        await asyncio.gather(looking, *tasks)
        rises = [mark - before[pid] for pid, mark in self._marks().items() if pid in before]
        # Memory that was held for less than the time between two looks shows in one process alone.
        over = max(max(self._held) - idle, *rises, 0)
        return {"idle_mb": _megabytes(idle), "peak_mb_over_idle": _megabytes(over), **self.figures()}

    def figures(self) -> dict[str, Any]:
        """The longest stall of `/livez`, with and without waiting for a core, and the honest client."""
        alive = [one for one in self._probes if one.name.startswith("livez")]
        honest = sorted(
            (one for one in self._probes if one.name.startswith("honest")), key=lambda one: one.seconds
        )
        return {
            "longest_stall_ms": round(1e3 * max(one.seconds for one in alive), 1),
            "own_stall_ms": round(1e3 * max(one.seconds - one.starved for one in alive), 1),
            "probes": dict(Counter(f"{one.name} {one.status}" for one in self._probes)),
            "honest_share_200": round(sum(one.status == 200 for one in honest) / len(honest), 4),
            "honest_p99_ms": round(1e3 * honest[int(0.99 * len(honest))].seconds, 1),
        }

    async def _look(self) -> None:
        while not self._over:
            each = {pid: _kilobytes(pid, "RssAnon") for pid in family(self._pid)}
            shared = each.pop(self._pid, 0)
            self._held.append(shared + sum(max(0, held - shared) for held in each.values()))
            await asyncio.sleep(_LOOK_SECONDS)

    def _marks(self) -> dict[int, int]:
        """The most that each process has held."""
        return {pid: _kilobytes(pid, "VmHWM") for pid in family(self._pid)}

    async def _ask(self, name: str, request: bytes, pause: float, is_kept: bool = False) -> None:
        """Ask again and again, on one connection where it is kept."""
        streams = None
        while not self._over:
            begun, starved, status = time.monotonic(), self._starved(), 0
            with suppress(OSError, EOFError, TimeoutError, ValueError):
                async with asyncio.timeout(LONGEST_WAIT):
                    streams = streams or await asyncio.open_connection(*self._address)
                    streams[1].write(request)
                    status = await read_answer(streams[0])
            waited = max(now - then for now, then in zip(self._starved(), starved, strict=True))
            self._probes.append(Probe(name, time.monotonic() - begun, status, waited))
            if streams is not None and not (is_kept and status):
                streams[1].close()
                streams = None
            await asyncio.sleep(pause)

    def _starved(self) -> list[float]:
        """Seconds that the event loop of each worker has waited for a core so far."""
        return [int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9 for pid in self._workers]


def _kilobytes(pid: int, field: str) -> int:
    try:
        found = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:  # it has just ended
        return 0
    return int(found[1]) if found else 0


def _megabytes(kilobytes: float) -> float:
    return round(kilobytes * 1024 / 1e6, 1)


def main() -> None:
    """Watch the process of the first input line until the second line comes, and print the figures."""
    with suppress(OSError):  # not everybody may
        os.nice(-15)
    pid, address, honest = json.loads(sys.stdin.readline())
    print(json.dumps(asyncio.run(_Watch(pid, tuple(address), honest.encode()).run())), flush=True)


if __name__ == "__main__":
    main()
