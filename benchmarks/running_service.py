"""`turret serve` as a process, from its start to its end."""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.process_memory import family


@dataclass(frozen=True)
class Running:
    """A service: its process, where it answers, and where it takes admin calls."""

    process: "subprocess.Popen[str]"
    url: str
    admin: str
    key: str

    def keep_to(self, cpu: int | None) -> None:
        """Let it and its workers run on that processor alone."""
        if cpu is not None:
            for pid in family(self.process.pid):
                subprocess.run(
                    ["taskset", "-a", "-p", "-c", str(cpu), str(pid)], check=True, capture_output=True
                )

    def activate(self, version: str) -> tuple[int, str]:
        """Activate a version; gives the status and the body of the answer."""
        body = json.dumps({"version": version})
        return post(self.admin, "/admin/activate", body, {"Authorization": f"Bearer {self.key}"})


@contextmanager
def running_service(bundles: Path, workers: int = 1, *more: str) -> Iterator[Running]:
    """Start a service on free ports and end it in the end. Raises RuntimeError when it doesn't start."""
    words = ["serve", "--bundles", str(bundles), "--port", "0", "--admin-port", "0", "--store", "memory://"]
    log = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 - a line for each request; closed in the end
    process = subprocess.Popen(
        [sys.executable, "-m", "turret", *words, "--workers", str(workers), *more],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )
    try:
        assert process.stdout is not None
        greeting = process.stdout.readline()
        urls = re.findall(r"http://[\d.:]+\d", greeting)
        if len(set(urls)) < 2:
            log.seek(0)
            raise RuntimeError(f"the service didn't start: {greeting}{log.read()[-2000:]}")
        key = (bundles / "admin.key").read_text(encoding="utf-8").strip()
        yield Running(process, urls[0], urls[-1], key)
    finally:
        process.terminate()
        process.wait(30)
        log.close()


def post(
    url: str, path: str, body: str, headers: dict[str, str] | None = None, method: str = "POST"
) -> tuple[int, str]:
    """Send one request on a connection of its own; gives the status and the body of the answer."""
    place = urlsplit(url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def seconds_to_first_answer(bundles: Path, body: str) -> float:
    """Seconds from the start of `turret serve` to its first recommendation."""
    begun = time.perf_counter()
    with running_service(bundles) as service:
        status, text = post(service.url, "/v1/recommend", body)
        seconds = time.perf_counter() - begun
    if status != 200:
        raise RuntimeError(f"the first recommendation was answered with {status}: {text}")
    return seconds
