"""The Compose project of the proof: its own name, ports, secrets and volumes, all removed at the end."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

ROOT = Path(__file__).parents[2]
NAME = "turret-proof"
BUNDLES_MB = 160


class CommandError(Exception):
    """A command has failed; the message is its output."""


class Project:
    """The production profile under a name of its own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="turret-proof-"))
        self.port = _free_port()
        self.bundles = self.folder / "bundles"
        self.environment = os.environ | {
            "COMPOSE_FILE": f"{ROOT / 'deploy' / 'production.yml'}:{self.folder / 'volumes.yml'}",
            "COMPOSE_PROJECT_NAME": NAME,
            "TURRET_ENV_FILE": str(self.folder / "env"),
            "TURRET_PUBLISH": f"127.0.0.1:{self.port}",
            "TURRET_PUBLISH_TLS": f"127.0.0.1:{_free_port()}",
            "TURRET_SECRETS": str(self.folder / "secrets"),
            "TURRET_TAG": "proof",
            "TURRET_TRAIN_TAG": "proof-train",
        }
        bind = {"type": "none", "o": "bind", "device": str(self.bundles)}
        volumes = {"version": "3.8", "volumes": {"bundles": {"driver_opts": bind}}}
        (self.folder / "volumes.yml").write_text(json.dumps(volumes))
        for name in ("redis", "tls", "grafana"):
            (self.folder / "secrets" / name).mkdir(parents=True)
        for name in ("redis", "grafana"):
            path = self.folder / "secrets" / name / "password"
            path.write_text(secrets.token_hex(24))
            path.chmod(0o444)

    def command(self, *words: str, accept: bool = False, seconds: float = 300) -> str:
        """Run a command in the repository; its output. CommandError if it fails, unless accepted."""
        try:
            run = subprocess.run(
                words,
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CommandError(f"{' '.join(words)}: not done within {seconds:.0f} seconds") from None
        output = run.stdout + "\n".join(
            line for line in run.stderr.splitlines() if not line.startswith(("Creating ", "Starting "))
        )
        if run.returncode and not accept:
            raise CommandError(f"{' '.join(words)}: status {run.returncode}: {output[-1500:]}")
        return output

    def compose(self, *words: str, accept: bool = False, seconds: float = 300) -> str:
        """Run `docker compose`."""
        return self.command("docker", "compose", *words, accept=accept, seconds=seconds)

    def run(self, service: str, *words: str, accept: bool = False) -> str:
        """Run one command in a container that is removed afterwards."""
        return self.compose("run", "--rm", "-T", service, *words, accept=accept)

    def activate(self, version: str, *options: str, accept: bool = False) -> str:
        """Activate a version, of a model that nobody evaluated; the answer, or the refusal if accepted."""
        words = ("activate", version, "--url", "http://service:8001", "--force")
        return self.run("admin", *words, *options, accept=accept)

    def containers(self, service: str = "service") -> list[str]:
        """The ids of the running containers of a service."""
        return self.compose("ps", "-q", service).split()

    def address(self, container: str) -> str:
        """The address of a container in the project's network, which its host reaches."""
        networks = json.loads(self.command("docker", "inspect", container))[0]["NetworkSettings"]["Networks"]
        found: str = networks[f"{NAME}_default"]["IPAddress"]
        return found

    def get(self, container: str, port: int, path: str) -> Any:
        """The JSON that a container itself answers a GET with."""
        return httpx2.get(f"http://{self.address(container)}:{port}{path}", timeout=15).json()

    def replica_versions(self) -> list[str]:
        """The version that each replica itself answers with."""
        return [self.get(one, 8000, "/readyz").get("version", "none") for one in self.containers()]

    def wait_until_ready(self, replicas: int = 2, seconds: float = 90) -> None:
        """Wait until Docker calls this many replicas healthy."""

        def healthy() -> bool:
            states = [
                self.command("docker", "inspect", "--format", "{{.State.Health.Status}}", one, accept=True)
                for one in self.containers()
            ]
            return sum("unhealthy" not in one and "healthy" in one for one in states) >= replicas

        wait(healthy, seconds, f"{replicas} healthy replicas")

    def limit_bundles(self) -> None:
        """Put the volume of the bundles on a file system of a known size, so that it can be filled."""
        self.bundles.mkdir()
        options = f"size={BUNDLES_MB}m,uid=1000,gid=1000,mode=755"
        self.command("mount", "-t", "tmpfs", "-o", options, "turret-proof", str(self.bundles))

    def destroy_volumes(self) -> None:
        """Stop all containers and delete all volumes, as a lost disk does."""
        self.compose("--profile", "observe", "down", "--volumes", "--timeout", "20", accept=True)
        self.command("umount", str(self.bundles), accept=True)
        shutil.rmtree(self.bundles, ignore_errors=True)

    def remove(self) -> None:
        """Remove everything that the proof has made."""
        self.compose("--profile", "observe", "kill", accept=True)
        for one in self.command("docker", "ps", "-aq", "--filter", f"name={NAME}_", accept=True).split():
            self.command("docker", "rm", "-f", one, accept=True)
        self.destroy_volumes()
        for tag in ("proof", "proof-next", "proof-train"):
            self.command("docker", "rmi", f"turret:{tag}", accept=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def wait(condition: Callable[[], Any], seconds: float, expected: str) -> None:
    """Wait until `condition` holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise CommandError(f"no {expected} within {seconds:.0f} seconds")
        time.sleep(0.3)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port
