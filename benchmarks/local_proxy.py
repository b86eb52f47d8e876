"""The proxy of the production profile as a local process, in front of replicas on this machine."""

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from tests.support.ports import free_port

FOLDER = Path(__file__).parent.parent / "deploy" / "production" / "proxy"
_START_SECONDS = 20


@contextmanager
def local_proxy(folder: Path, ports: list[int]) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """A running nginx, and its port, for any number of requests of one address."""
    port = free_port()
    with running_proxy(folder, ports, f"127.0.0.1:{port}") as process:
        yield process, port


@contextmanager
def running_proxy(
    folder: Path, ports: list[int], listen: str, limits: str = ""
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start nginx before the replicas with these ports.

    `listen` is an address in the words of nginx, such as `unix:/tmp/socket`; `limits` are its directives that
    limit a client. `folder` is empty and takes the files of nginx.
    """
    configuration = _configure(folder, listen, ports, limits)
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
    scratch.mkdir()
    for path in FOLDER.glob("*.conf"):
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
