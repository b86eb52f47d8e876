"""A service under attack, and the process that watches it: memory, processor time, another client."""

import multiprocessing
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import NamedTuple
from urllib.parse import urlsplit

from benchmarks.abuse_requests import RULES, Request, json_request
from benchmarks.processes import Running, family, running_service
from turret.service.keys.keys import add_key, new_key, record

LONG_SECONDS = 0.075  # after a request this long, the next question of the other client is awaited
PATIENCE, LONGEST = 5.0, 60.0  # most seconds for an answer: of the workers' processors, and of the clock
SETTINGS = {"drain_delay": "0", "metrics_open": "false", "log_level": "error"}
SCOPES = ("read", "write", "rules", "admin")
Address = tuple[str, int]


class Probe(NamedTuple):
    """A question of the other client: seconds beyond the median (`wait`), and without those for a core."""

    begun: float
    ended: float
    wait: float
    stall: float
    status: int


class Cost(NamedTuple):
    """An answer and its cost; status 0: the answer was cut off, -1: none came."""

    status: int
    body: bytes
    processor_ms: float
    stall_ms: float
    wait_ms: float


class Target:
    """A service with a folder of its own, and the process that watches it."""

    def __init__(self, bundles: Path) -> None:
        self._bundles = bundles
        self._stack = ExitStack()
        self.keys: dict[str, str] = {}
        self.doors: list[str] = []
        self.quick, self.seconds = False, 0.0

    def start(
        self, folder: Path | None = None, version: str = "first", settings: Mapping[str, str] = SETTINGS
    ) -> None:
        """Start a service, in a new folder unless one is given."""
        self._version = version
        self.folder = folder or Path(tempfile.mkdtemp(prefix="turret-abuse-"))
        if folder is None:
            shutil.copytree(self._bundles, self.folder / "bundles")
            (self.folder / "bundles" / "current").write_text(f"{version}\n")
            for name, scopes in {**{scope: (scope,) for scope in SCOPES}, "all": SCOPES}.items():
                self.keys[name] = new_key(name)
                add_key(self.folder / "keys.json", record(name, self.keys[name], scopes))
        store, keys = f"sqlite:///{self.folder}/history.sqlite", str(self.folder / "keys.json")
        service_settings = SETTINGS | {"keys": keys, **settings}
        service = running_service(self.folder / "bundles", 1, "--store", store, **service_settings)
        self.service: Running = self._stack.enter_context(service)
        self.public, self.admin = map(_address, (self.service.url, self.service.admin))
        self.workers = family(self.service.process.pid)[1:]
        if folder is None:
            self.exchange(json_request("PUT", "/v1/rules", {"rules": RULES}))
        for _ in range(30):
            self.exchange(OTHER_CLIENT)
        self.watch()

    def watch(self) -> None:
        """Begin to measure memory, and to ask as another client."""
        for pid in self.workers:
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # VmHWM begins anew
        self._idle = self._resident()
        self._processor = self._used()
        self._probes: list[Probe] = []
        self._pipe, theirs = multiprocessing.Pipe()
        wire = _wire(OTHER_CLIENT, self.keys["read"])
        arguments = (theirs, self.public, wire, self.workers[0], os.getpid())
        self._prober = multiprocessing.get_context("fork").Process(target=_probe, args=arguments, daemon=True)
        self._prober.start()
        self._pipe.recv()

    def end(self, kill: bool = False, keep: bool = False) -> None:
        """End the service, by force if it hangs."""
        self._prober.kill()
        if kill:
            for pid in family(self.service.process.pid):
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        self._stack.close()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def again(self, version: str | None = None) -> None:
        """Replace a service that hangs or was changed by a new one, of the same version by default."""
        self.end(kill=True)
        self.start(version=version or self._version)

    def restart(self) -> None:
        """End the service as an operator does, and start it with the data that it had."""
        self.end(keep=True)
        self.start(self.folder)

    def open_door(self, words: str) -> None:
        """Note a door that is open."""
        self.doors.append(words)
        print(f"OPEN {words}", file=sys.stderr, flush=True)

    def exchange(
        self, request: Request, key: str | None = "all", address: Address | None = None
    ) -> tuple[int, bytes]:
        """Send a request on a connection of its own: status (0: cut off) and body.

        Raises TimeoutError where no answer came within `PATIENCE` seconds of the workers' processor time.
        """
        place = address or (self.admin if "admin" in request.target else self.public)
        content, used, end = b"", self._used(), time.monotonic() + LONGEST
        with suppress(ConnectionError), socket.create_connection(place, timeout=LONGEST) as connection:
            with suppress(ConnectionError):  # the request may be refused before it was sent
                connection.sendall(_wire(request, self.keys.get(key, key) if key else None))
            connection.settimeout(0.5)
            while True:
                try:
                    part = connection.recv(1 << 20)
                except TimeoutError:
                    if self._used() - used > PATIENCE or time.monotonic() > end:
                        raise
                    continue
                if not part:
                    break
                content += part
        head, _, body = content.partition(b"\r\n\r\n")
        return int(head[9:12]) if head.startswith(b"HTTP/1.1 ") else 0, body

    def cost(self, request: Request) -> Cost:
        """Send a request and measure it."""
        begun = time.monotonic()
        try:
            status, body = self.exchange(request)
        except TimeoutError:
            return Cost(-1, b"", *[1e3 * PATIENCE] * 3)
        ended = time.monotonic()
        before, self._processor = self._processor, self._used()
        stall, wait = self.stall(begun, ended)
        return Cost(status, body, 1e3 * (self._processor - before), 1e3 * stall, 1e3 * wait)

    def stall(self, begun: float, ended: float) -> tuple[float, float]:
        """The longest stall and wait of the other client between two times."""
        until = time.monotonic() + 2 * PATIENCE
        is_long = ended - begun > LONG_SECONDS  # a shorter stall is seen with the next request
        while self._pipe.poll(0.05 if is_long else 0) or is_long:
            if self._pipe.poll():
                self._probes.append(self._pipe.recv())
            if time.monotonic() > until or (self._probes and self._probes[-1].begun > ended):
                break
        probes = [probe for probe in self._probes if probe.ended > begun and probe.begun < ended]
        self._probes = [probe for probe in self._probes if probe.ended > ended]
        return max((probe.stall for probe in probes), default=0.0), max(
            (probe.wait for probe in probes), default=0.0
        )

    def peak_mb(self) -> float:
        """The most resident memory of the workers over that at the start."""
        return max(0.0, self._resident("VmHWM") - self._idle)

    def failures(self) -> int:
        """The number of answers of 500."""
        _, text = self.exchange(json_request("GET", "/metrics"))
        counts = re.findall(r'^turret_requests_total\{.*status="500"\} (\S+)', text.decode(), re.MULTILINE)
        return int(sum(map(float, counts)))

    def is_whole(self) -> bool:
        """Whether the workers are those of the start."""
        return all(Path(f"/proc/{pid}/status").exists() for pid in self.workers)

    def _resident(self, field: str = "VmRSS") -> float:
        lines = "".join(Path(f"/proc/{pid}/status").read_text() for pid in self.workers if self.is_whole())
        return sum(int(line.split()[1]) for line in lines.splitlines() if line.startswith(field)) * 1024 / 1e6

    def _used(self) -> float:
        """Processor seconds of all threads of the workers."""
        return sum(sum(_schedule(path)[:1]) for pid in self.workers for path in _threads(pid)) / 1e9


OTHER_CLIENT = json_request("POST", "/v1/recommend", {"history": [f"i{n:04d}" for n in range(40)], "k": 10})


def _probe(pipe: Connection, address: Address, recommend: bytes, worker: int, parent: int) -> None:
    """Ask for `/livez` and recommendations until killed, and send a Probe for each answer."""
    with suppress(OSError):  # not every user may
        os.nice(-15)
    seconds: dict[bytes, list[float]] = {}
    questions = (_wire(Request("", "", "GET", "/livez"), None), recommend)
    while os.getppid() == parent:
        for question in questions:
            begun, status = time.monotonic(), 0
            starved = _starved(worker)
            with suppress(OSError), socket.create_connection(address, timeout=2 * PATIENCE) as connection:
                connection.sendall(question)
                status = int(connection.recv(1 << 16)[9:12] or 0)
            ended = time.monotonic()
            waited = max(
                (now - starved.get(thread, now) for thread, now in _starved(worker).items()), default=0.0
            )
            known = seconds.setdefault(question, [])
            if len(known) < 50:
                known.append(ended - begun)
            beyond = max(0.0, ended - begun - median(known))
            if len(known) == 50:
                pipe.send(Probe(begun, ended, beyond, max(0.0, beyond - waited), status))
        time.sleep(0.02 if len(known) == 50 else 0.0)


def _starved(worker: int) -> dict[Path, float]:
    """Seconds that each thread of the worker, and this process, waited for a core so far."""
    threads = [*_threads(worker), Path("/proc/self")]
    return {thread: sum(_schedule(thread)[1:2]) / 1e9 for thread in threads}


def _threads(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").glob("*"))


def _schedule(thread: Path) -> list[int]:
    """Nanoseconds on a core, and of waiting for one; empty for a thread that has ended."""
    try:
        return list(map(int, (thread / "schedstat").read_text().split()))
    except OSError:
        return []


def _address(url: str) -> Address:
    parts = urlsplit(url)
    return str(parts.hostname), int(parts.port or 80)


def _wire(request: Request, key: str | None) -> bytes:
    head = [f"{request.method} {request.target} HTTP/1.1", "Host: abuse", "Connection: close"]
    head += [f"Authorization: Bearer {key}"] if key else []
    if request.body is not None:
        head += [f"Content-Type: {request.kind}", f"Content-Length: {len(request.body)}"]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + (request.body or b"")
