"""Other processes: a running `turret serve`, the cost of a command, and the memory and time of a process.

`python -m benchmarks.processes WORDS...` runs a command from a small process, as the peak memory of a child
begins with that of its parent.
"""

import json
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple, TypeVar, TypeVarTuple
from urllib.parse import urlsplit

from tests.support.ports import free_port

PROXY_FOLDER = Path(__file__).parent.parent / "deploy" / "production" / "proxy"
_START_SECONDS = 20


@contextmanager
def local_proxy(
    folder: Path, ports: list[int], limits: str = ""
) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """Start nginx; yield its process and its port."""
    port = free_port()
    with running_proxy(folder, ports, f"127.0.0.1:{port}", limits) as process:
        yield process, port


@contextmanager
def running_proxy(
    folder: Path, ports: list[int], listen: str, limits: str = ""
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start nginx before the replicas with these ports.

    `listen` is an address in the words of nginx, such as `unix:/tmp/socket`; `limits` are its directives that
    limit a client. `folder` takes the files of nginx.
    """
    with running_nginx(folder, _configure(folder, listen, ports, limits), listen) as process:
        yield process


@contextmanager
def running_nginx(folder: Path, configuration: Path, listen: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Start nginx with a configuration file; `listen` is the address that it names, `folder` has the log."""
    command = ["nginx", "-e", str(folder / "error.log"), "-c", str(configuration)]
    process = subprocess.Popen([*command, "-g", "daemon off; master_process off;"])
    try:
        end = time.monotonic() + _START_SECONDS
        while process.poll() is None and time.monotonic() < end and not _listens(listen):
            time.sleep(0.01)
        yield process
    finally:
        process.terminate()
        process.wait(timeout=10)


def _listens(address: str) -> bool:
    with suppress(OSError):
        if address.startswith("unix:"):
            with closing(socket.socket(socket.AF_UNIX)) as client:
                client.connect(address.removeprefix("unix:"))
        else:
            host, port = address.split(":")
            socket.create_connection((host, int(port)), timeout=1).close()
        return True
    return False


def _configure(folder: Path, listen: str, ports: list[int], limits: str) -> Path:
    """Write the shipped configuration with a local address, and addresses in place of Compose's names."""
    scratch = folder / "nginx"
    scratch.mkdir(parents=True)
    for path in PROXY_FOLDER.glob("*.conf"):
        text = (
            path.read_text("utf-8").replace("/deploy/proxy", str(folder)).replace("/tmp/nginx", str(scratch))
        )
        text = text.replace("listen 8080;", f"listen {listen};")
        text = re.sub(r"^resolver.*$|^set \$replicas.*$", "", text, flags=re.MULTILINE)
        text = text.replace("http://$replicas:8000", "http://replicas")
        (folder / path.name).write_text(text)
    (scratch / "limits.conf").write_text(limits)
    servers = "".join(f"server 127.0.0.1:{port} max_fails=0; " for port in ports)
    plain = (folder / "plain.conf").read_text("utf-8")
    (scratch / "listen.conf").write_text(f"upstream replicas {{ {servers} }}\n{plain}")
    return folder / "nginx.conf"


Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")
_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of a unit of ru_maxrss
_TICKS = os.sysconf("SC_CLK_TCK")
_PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True)
class Running:
    """A service: its process, its URL, and the URL and the key of admin calls."""

    process: "subprocess.Popen[str]"
    url: str
    admin: str
    key: str

    def keep_to(self, cpu: int | None) -> None:
        """Let the service and its workers run on the processor `cpu` alone."""
        if cpu is not None:
            for pid in family(self.process.pid):
                subprocess.run(
                    ["taskset", "-a", "-p", "-c", str(cpu), str(pid)], check=True, capture_output=True
                )

    def activate(self, version: str) -> str:
        """Activate a version; return the answer. Raises RuntimeError where it is refused."""
        body = json.dumps({"version": version})
        return post(self.admin, "/admin/activate", body, {"Authorization": f"Bearer {self.key}"})


def alone(function: Callable[[*Arguments], Result], *arguments: *Arguments, **environment: str) -> Result:
    """Call a function in a process of its own, whose memory and variables of the environment are its own."""
    before = dict(os.environ)
    os.environ |= environment
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return pool.submit(function, *arguments).result()
    finally:
        os.environ.clear()
        os.environ |= before


@contextmanager
def running_service(bundles: Path, workers: int = 1, *more: str, **settings: str) -> Iterator[Running]:
    """Start a service on free ports and end it after the block. Raises RuntimeError when it doesn't start.

    `more` are options of `turret serve`, `settings` are settings without an option.
    """
    words = ["serve", "--bundles", str(bundles), "--port", "0", "--admin-port", "0", "--store", "memory://"]
    log = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 - a line for each request; closed in the end
    process = subprocess.Popen(
        [sys.executable, "-m", "turret", *words, "--workers", str(workers), *more],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env=os.environ | {f"TURRET_{name.upper()}": value for name, value in settings.items()},
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


def post(url: str, path: str, body: str, headers: dict[str, str] | None = None, method: str = "POST") -> str:
    """Send a request on its own connection; return the answer. Raises RuntimeError for a status but 200."""
    place = urlsplit(url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    if response.status != 200:
        raise RuntimeError(f"{path} was answered with {response.status}: {text[:500]}")
    return text


def seconds_to_first_answer(bundles: Path, body: str) -> float:
    """Seconds from the start of `turret serve` to its first recommendation."""
    begun = time.perf_counter()
    with running_service(bundles) as service:
        post(service.url, "/v1/recommend", body)
        return time.perf_counter() - begun


def family(pid: int) -> list[int]:
    """The ids of a process and of all its descendants."""
    pids = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            pids += family(int(child))
    return pids


def resident_bytes(pid: int) -> int:
    """Resident bytes of a process with its children; a page that several share counts once (PSS)."""
    total = 0
    for member in family(pid):
        try:
            text = Path(f"/proc/{member}/smaps_rollup").read_text()
        except OSError:  # the process has just ended
            continue
        match = _PSS.search(text)
        total += int(match[1]) * 1024 if match else 0
    return total


def processor_seconds(pid: int) -> float:
    """Processor seconds of a process and its children since their start."""
    total = 0
    for member in family(pid):
        fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def turret(*words: object) -> str:
    """Run a command of Turret and return its standard output. Raises CalledProcessError if it fails."""
    command = [sys.executable, "-m", "turret", *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


class CommandCost(NamedTuple):
    """Seconds of the clock, seconds of processors, and megabytes (10^6 bytes) at the peak."""

    seconds: float
    processor_seconds: float
    peak_mb: float


def turret_cost(*words: object) -> CommandCost:
    """Run a command of Turret and return its cost. Raises CalledProcessError if it fails."""
    command = [sys.executable, "-m", "benchmarks.processes", sys.executable, "-m", "turret", *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return CommandCost(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Run the words of the command line, and print their cost."""
    begun = time.perf_counter()
    process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    if status:
        raise SystemExit(f"{' '.join(sys.argv[1:])} ended with {os.waitstatus_to_exitcode(status)}")
    used = usage.ru_utime + usage.ru_stime
    print(json.dumps(CommandCost(seconds, used, usage.ru_maxrss * _UNIT / 1e6)._asdict()))


if __name__ == "__main__":
    main()
