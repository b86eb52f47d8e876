"""The proxy of the production profile as a local process, in front of replicas on this machine."""

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.http_candidates import free_port

FOLDER = Path(__file__).parent.parent / "deploy" / "production" / "proxy"


@dataclass(frozen=True)
class Proxy:
    """A running nginx and its port."""

    process: "subprocess.Popen[bytes]"
    port: int


@contextmanager
def local_proxy(folder: Path, ports: list[int], is_limited: bool = True) -> Iterator[Proxy]:
    """Start nginx in front of the replicas with these ports; `folder` is empty and takes its files.

    Without `is_limited` one address may send any number of requests.
    """
    listen = free_port()
    command = [
        "nginx",
        "-e",
        str(folder / "error.log"),
        "-c",
        str(_configure(folder, listen, ports, is_limited)),
    ]
    process = subprocess.Popen([*command, "-g", "daemon off; master_process off;"])
    try:
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", listen), timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield Proxy(process, listen)
    finally:
        process.terminate()
        process.wait(timeout=10)


def _configure(folder: Path, listen: int, ports: list[int], is_limited: bool) -> Path:
    """Write the shipped configuration with a local port, and addresses in place of Compose's names."""
    scratch = folder / "nginx"
    scratch.mkdir()
    for path in FOLDER.glob("*.conf"):
        text = (
            path.read_text("utf-8").replace("/deploy/proxy", str(folder)).replace("/tmp/nginx", str(scratch))
        )
        text = text.replace("listen 8080;", f"listen 127.0.0.1:{listen};")
        text = re.sub(r"^resolver.*$|^set \$replicas.*$", "", text, flags=re.MULTILINE)
        text = text.replace("http://$replicas:8000", "http://replicas")
        if not is_limited:
            text = re.sub(r"^limit_(conn|req) .*$", "", text, flags=re.MULTILINE)
        (folder / path.name).write_text(text)
    (folder / "limits.conf").rename(scratch / "limits.conf")
    servers = "".join(f"server 127.0.0.1:{port} max_fails=0; " for port in ports)
    plain = (folder / "plain.conf").read_text("utf-8")
    (scratch / "listen.conf").write_text(f"upstream replicas {{ {servers} }}\n{plain}")
    return folder / "nginx.conf"
