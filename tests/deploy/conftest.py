"""A stand-in for the container engine; `make test-compose` has a real one."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.places import ROOT

DEPLOY = ROOT / "deploy"
# Replicas are files, each with the identity of its image; one of the image `broken` restarts.
# The file `plain` selects the profile without a Redis, `full` fills the volumes, `torn` cuts the output of
# containers, and with `crowded` none can start.
DOCKER = r"""#!/usr/bin/env bash
cd "$STATE"
last="${*: -1}"
case "$*" in
  "image inspect --format"*) [ -e "images/${last#turret:}" ] && cat "images/${last#turret:}" ;;
  "image inspect"*) [ -e "images/${last#turret:}" ] ;;
  "images turret"*) ls images ;;
  "compose ps -q service") ls replicas ;;
  "compose ps -q nightly") [ ! -e nightly ] || echo nightly ;;
  "compose up"*scale*)
    if [ -e crowded ]; then echo "no memory for another container" >&2; exit 1; fi
    echo "up ${TURRET_TAG}" >>log
    cp "images/$TURRET_TAG" "replicas/r$(date +%N)" ;;
  *.State.Health.Status*) if grep -q broken "replicas/$last"; then echo starting; else echo healthy; fi ;;
  *.RestartCount*) if grep -q broken "replicas/$last"; then echo 3; else echo 0; fi ;;
  *"{{.Image}}"*) cat "replicas/$last" ;;
  *.Config.Image*) echo "turret:$(cat "replicas/$last")" ;;
  *"{{.Name}}"*) echo "/$last" ;;
  "stop "*) echo "stop $(cat "replicas/$last") of $(ls replicas | wc -l)" >>log ;;
  "rm "*) rm "replicas/$last" ;;
  "logs "*) echo "setting port can't be 'nowhere'" ;;
  *" config --services") echo service; [ -e plain ] || echo admin ;;
  *"redis true") [ ! -e plain ] ;;
  *"cli --rdb -")
    if [ -e torn ]; then printf 'REDIS0011da'; else printf 'REDIS0011data\xff12345678'; fi
    [ ! -e diskless ] || printf '0123456789abcdef0123456789abcdef01234567' ;;
  *" state" | *" bundles")
    printf tar
    [ ! -e torn ] || printf '\0'
    echo "sha256 $(printf tar | sha256sum | cut -d ' ' -f 1)" >&2 ;;
  *" empty")
    [ ! -e full ] || exit 3 ;;
  *) echo "$1 $2 $last" >>log; cat >/dev/null ;;
esac
"""


@dataclass(frozen=True)
class Engine:
    """The folder of the state, and the variables that a script runs with."""

    state: Path
    variables: dict[str, str]

    @property
    def env_file(self) -> Path:
        return Path(self.variables["TURRET_ENV_FILE"])

    @property
    def replicas(self) -> list[str]:
        """The images of the replicas."""
        return sorted(path.read_text() for path in (self.state / "replicas").iterdir())

    @property
    def log(self) -> list[str]:
        """The commands that change something."""
        path = self.state / "log"
        return path.read_text().splitlines() if path.exists() else []

    def select(self, profile: str) -> None:
        """Select the profile `production`, or `plain`, which has no Redis."""
        (self.state / "plain").unlink(missing_ok=True)
        if profile == "plain":
            (self.state / "plain").touch()

    def run(self, script: str, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a script of deploy/."""
        command = [str(DEPLOY / script), *words]
        return subprocess.run(
            command, env=self.variables, capture_output=True, text=True, timeout=60, check=False
        )


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    """Two replicas of the image `old`, and the images `new` and `broken`."""
    state = tmp_path / "state"
    for folder in ("images", "replicas"):
        (state / folder).mkdir(parents=True)
    for name in ("old", "new", "broken"):
        (state / "images" / name).write_text(name)
    for name in ("a", "b"):
        (state / "replicas" / name).write_text("old")
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    variables = {
        "PATH": f"{docker.parent}:{os.environ['PATH']}",
        "STATE": str(state),
        "TURRET_ENV_FILE": str(tmp_path / "env"),
        "ROLL_SECONDS": "60",
    }
    return Engine(state, variables)
