"""The HTTP servers that are compared: how each is started, with which of its own limits."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

from benchmarks.process_memory import family

ROOT = Path(__file__).parent.parent
NGINX = ROOT / "deploy" / "nginx.conf"
LIMIT_SECONDS = 1  # where a server has a limit of time, so that a run need not wait for minutes
HEAD_BYTES, BODY_BYTES, REQUESTS = 16_384, 1_000_000, 128
OURS, BEHIND = "ours", "ours behind nginx"
_NGINX_SETTINGS = "daemon off; pid nginx.pid;"


@dataclass(frozen=True)
class Candidate:
    """A server: its command, in which PORT stands for the port, the limits it was given, files of its own."""

    name: str
    command: tuple[str, ...]
    limits: str
    files: Mapping[str, str]
    upstream: "Candidate | None" = None


@dataclass(frozen=True)
class Served:
    """A server that runs: where, and all its processes."""

    port: int
    roots: tuple[int, ...]

    @property
    def processor_seconds(self) -> float:
        """What its processes have used so far."""
        ticks = 0
        for pid in self.pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    @property
    def pids(self) -> list[int]:
        """Its processes with their children."""
        return [pid for root in self.roots for pid in family(root)]


def candidates(peers: Path) -> list[Candidate]:
    """All that can be run here; `peers` is the interpreter that has the other servers."""
    app, uvicorn = (
        "benchmarks.http_app:app",
        (str(peers), "-m", "uvicorn", "--no-access-log", "--port", "PORT"),
    )
    plain = (*uvicorn, "--loop", "uvloop", "--ws", "none", "--log-level", "critical")
    limited = (*plain, "--limit-concurrency", "1000", "--timeout-keep-alive", "20")
    ours = Candidate(
        OURS,
        (sys.executable, "-m", "benchmarks.http_ours", "PORT", str(LIMIT_SECONDS)),
        "its own: bytes and seconds of head, body and answer; lanes",
        {},
    )
    results = [
        ours,
        Candidate(
            "uvicorn, httptools",
            (*limited, "--http", "httptools", app),
            "`--limit-concurrency`, `--timeout-keep-alive`",
            {},
        ),
        Candidate(
            "uvicorn, h11",
            (*limited, "--http", "h11", "--h11-max-incomplete-event-size", str(HEAD_BYTES), app),
            "the same, `--h11-max-incomplete-event-size`",
            {},
        ),
        Candidate(
            "granian", _granian(peers, app), "`--backpressure`, `--http1-buffer-size`, header timeout", {}
        ),
        _hypercorn(peers, app),
    ]
    if nginx := shutil.which("nginx"):
        command = (nginx, "-p", ".", "-c", "nginx.conf", "-e", "error.log", "-g", _NGINX_SETTINGS)
        results.append(Candidate(BEHIND, command, "those of `deploy/nginx.conf`", {"nginx.conf": ""}, ours))
    return results


def _hypercorn(peers: Path, app: str) -> Candidate:
    options = ("-k", "uvloop", "-c", "hypercorn.toml", "-b", "127.0.0.1:PORT")
    command = (str(peers), "-m", "hypercorn", *options, app)
    settings = (
        f"h11_max_incomplete_size = {HEAD_BYTES}\nread_timeout = {LIMIT_SECONDS}\n"
        'keep_alive_timeout = 20\nloglevel = "CRITICAL"\n'
    )
    limits = "`h11_max_incomplete_size`, `read_timeout`, `keep_alive_timeout`"
    return Candidate("hypercorn", command, limits, {"hypercorn.toml": settings})


def _granian(peers: Path, app: str) -> tuple[str, ...]:
    options = [
        "--interface",
        "asgi",
        "--http",
        "1",
        "--loop",
        "uvloop",
        "--no-ws",
        "--workers",
        "1",
        "--no-log",
    ]
    options += ["--backpressure", str(REQUESTS), "--http1-buffer-size", "65536"]
    options += ["--http1-header-read-timeout", str(1000 * LIMIT_SECONDS), "--port", "PORT", app]
    return (str(peers.with_name("granian")), *options)


@contextmanager
def served(candidate: Candidate, cpu: int | None) -> Iterator[Served]:
    """Start a server on a free port and on one processor; it is killed in the end."""
    with ExitStack() as stack:
        behind = stack.enter_context(served(candidate.upstream, cpu)) if candidate.upstream else None
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = free_port()
        for name, text in candidate.files.items():
            (folder / name).write_text(text or nginx_configuration(port, behind.port if behind else 0))
        command = [word.replace("PORT", str(port)) for word in candidate.command]
        if cpu is not None:
            command = ["taskset", "-c", str(cpu), *command]
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(_end, process)
        _wait(port, process, candidate.name)
        yield Served(port, (process.pid, *(behind.roots if behind else ())))


def nginx_configuration(port: int, behind: int) -> str:
    """`deploy/nginx.conf` with other ports, one process, and limits of time as short as the others' are."""
    text = NGINX.read_text("utf-8").replace("listen 80;", f"listen 127.0.0.1:{port};")
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{behind}").replace("processes auto", "processes 1")
    times = r"(client_header_timeout|send_timeout) \d+s"
    text = re.sub(times, rf"\1 {LIMIT_SECONDS}s", text)
    paths = [f"{kind}_temp_path {kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")]
    return "user root;\n" * (not Path("/proc/self").stat().st_uid) + text.replace(
        "http {", "http {\n    " + "\n    ".join(paths), 1
    )


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def _wait(port: int, process: "subprocess.Popen[bytes]", name: str) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end and process.poll() is None:
        with suppress(OSError), closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            connection.request("GET", "/livez")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.05)
    raise RuntimeError(f"{name} does not answer; its command was {process.args!r}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a server with all its processes, first the one that would replace the others."""
    for pid in family(process.pid):
        with suppress(OSError):
            subprocess.run(["kill", "-KILL", str(pid)], check=False, capture_output=True)
    process.wait()
