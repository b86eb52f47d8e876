"""The scripts backup, restore, roll and setup of deploy/ with a stand-in for the container engine.

`make test-compose` has a real one.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.tools import require

DEPLOY = ROOT / "deploy"
SHELL = ["backup", "restore", "roll", "sbom", "setup", "*.sh", "production/**/*.sh"]
PARTS = {"production": ["redis.rdb", "state.tar", "bundles.tar"], "plain": ["state.tar", "bundles.tar"]}
PASSWORD = "0123456789abcdef"
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
  "compose ps -q nightly") ;;
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
    def tag(self) -> str | None:
        """The line of the environment file that names the image of the next start."""
        path = Path(self.variables["TURRET_ENV_FILE"])
        return path.read_text() if path.exists() else None

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
        command, env = [str(DEPLOY / script), *words], self.variables
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    """Two replicas of the image `old`, and the images `new` and `broken`."""
    state = tmp_path / "state"
    for folder in (state / "images", state / "replicas", tmp_path / "bin"):
        folder.mkdir(parents=True)
    for name in ("old", "new", "broken"):
        (state / "images" / name).write_text(name)
    for name in ("a", "b"):
        (state / "replicas" / name).write_text("old")
    docker = tmp_path / "bin" / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    variables = {
        "PATH": f"{docker.parent}:{os.environ['PATH']}",
        "STATE": str(state),
        "TURRET_ENV_FILE": str(tmp_path / "env"),
        "ROLL_SECONDS": "60",
    }
    return Engine(state, variables)


@pytest.fixture(params=PARTS)
def profile(engine: Engine, request: pytest.FixtureRequest) -> str:
    """The selected profile; without the production profile histories are in SQLite."""
    name: str = request.param
    engine.select(name)
    return name


@pytest.fixture
def copy(engine: Engine, profile: str, tmp_path: Path) -> Path:
    """A backup."""
    folder = tmp_path / "copy"
    done = engine.run("backup", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


def refused(engine: Engine, folder: Path, *options: str) -> str:
    """Restore, and give the reason of the refusal, after which nothing has changed."""
    done = engine.run("restore", *options, str(folder))
    assert done.returncode == 1
    assert engine.log == []
    return done.stderr


@pytest.mark.fault(74)
@pytest.mark.process
def test_a_damaged_backup_is_refused_before_anything_is_touched(engine: Engine, copy: Path) -> None:
    whole = (copy / "bundles.tar").read_bytes()
    (copy / "bundles.tar").write_text("tas")
    assert "is damaged: bundles.tar differs from its checksum" in refused(engine, copy, "--replace")
    (copy / "bundles.tar").unlink()
    assert "lacks bundles.tar" in refused(engine, copy, "--replace")
    (copy / "bundles.tar").write_bytes(whole)
    *lines, _ = (copy / "SHA256SUMS").read_text().splitlines(keepends=True)
    (copy / "SHA256SUMS").write_text("".join(lines))
    assert "doesn't name bundles.tar" in refused(engine, copy, "--replace")
    (copy / "SHA256SUMS").unlink()
    assert "is not a complete backup: it has no SHA256SUMS" in refused(engine, copy, "--replace")


@pytest.mark.process
def test_a_restore_into_volumes_that_hold_something_needs_a_word(
    engine: Engine, profile: str, copy: Path
) -> None:
    (engine.state / "full").touch()
    assert "the volumes var and bundles are not empty. Nothing was changed" in refused(engine, copy)
    assert engine.run("restore", "--replace", str(copy)).returncode == 0
    redis = profile == "production"
    assert [line.split()[-1] for line in engine.log] == [
        "redis" if redis else "service",  # the last one that is stopped
        *(["clear"] * (1 + redis)),
        *(["unpack"] * 2),
        *(["load"] * redis),
        "-d",
    ]


@pytest.mark.nightly
def test_a_backup_is_a_folder_with_checksums_for_its_owner_alone(
    engine: Engine, profile: str, copy: Path
) -> None:
    assert copy.stat().st_mode & 0o777 == 0o700
    sums = dict(line.split("  ")[::-1] for line in (copy / "SHA256SUMS").read_text().splitlines())
    assert sums == {name: hashlib.sha256((copy / name).read_bytes()).hexdigest() for name in PARTS[profile]}
    assert {path.name for path in copy.iterdir()} == {*PARTS[profile], "SHA256SUMS"}
    assert "is not an empty folder" in engine.run("backup", str(copy)).stderr
    engine.select("plain" if profile == "production" else "production")
    other = {"production": "is a backup of the production profile", "plain": "has no snapshot of a Redis"}
    assert other[profile] in refused(engine, copy, "--replace")


@pytest.mark.nightly
def test_the_mark_of_a_snapshot_sent_without_a_file_is_no_part_of_it(engine: Engine, tmp_path: Path) -> None:
    (engine.state / "diskless").touch()
    assert engine.run("backup", str(tmp_path / "copy")).returncode == 0
    assert (tmp_path / "copy" / "redis.rdb").read_bytes() == b"REDIS0011data\xff12345678"


@pytest.mark.fault(74)
@pytest.mark.nightly
def test_a_backup_without_room_is_no_backup(engine: Engine, profile: str, tmp_path: Path) -> None:
    """The engine may swallow the error of a full disk: the files lack a part of the output."""
    (engine.state / "torn").touch()
    done = engine.run("backup", str(tmp_path / "copy"))
    assert done.returncode == 1
    part = "the snapshot of the Redis" if profile == "production" else "state.tar"
    assert done.stderr == f"deploy/backup: {part} is incomplete; look whether {tmp_path}/copy.part has room\n"
    assert [path for path in tmp_path.iterdir() if path.name.startswith("copy")] == []


@pytest.mark.process
def test_a_roll_replaces_one_replica_after_the_other(engine: Engine) -> None:
    """Each new one is there before an old one stops."""
    done = engine.run("roll", "new")
    assert done.returncode == 0, done.stderr
    assert engine.replicas == ["new", "new"]
    assert engine.log == ["up new", "stop old of 3"] * 2
    assert done.stdout.endswith("all 2 replicas run turret:new; the way back: deploy/roll old\n")
    assert engine.tag == "TURRET_TAG=new\n"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("tag", "reasons"),
    [
        ("missing", ["there is no image turret:missing on this machine. There are: broken new old"]),
        ("broken", ["setting port can't be 'nowhere'", "wasn't ready within 60 seconds and was removed"]),
        ("crowded", ["no memory for another container", "a replica of turret:crowded can't be started"]),
        ("locked", ["another deploy/roll runs; wait until it has ended"]),
    ],
)
def test_a_roll_that_fails_says_why_and_leaves_the_old_replicas(
    engine: Engine, tag: str, reasons: list[str]
) -> None:
    if tag == "crowded":
        (engine.state / "images" / tag).write_text(tag)
        (engine.state / tag).touch()
    with (DEPLOY / "roll").open("rb") as other:
        if tag == "locked":
            fcntl.flock(other, fcntl.LOCK_EX)
        done = engine.run("roll", tag)
    assert done.returncode == 1
    assert [reason for reason in reasons if reason not in done.stderr + done.stdout] == []
    if tag in ("broken", "crowded"):
        assert "2 replicas still answer. The way back: deploy/roll old" in done.stderr
    assert engine.replicas == ["old", "old"]
    assert engine.tag is None


def read_secret(path: Path) -> "subprocess.CompletedProcess[str]":
    command = f'. {DEPLOY}/production/secret.sh; read_secret "{path}"'
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, "is missing"),
        (PASSWORD * 9, "has to have 16 to 128 characters"),
        (f"{PASSWORD}@redis:6379", "has characters other than letters, digits, - and _"),
        (f"{PASSWORD}\n{PASSWORD}", "has characters other than letters, digits, - and _"),
    ],
)
def test_a_faulty_secret_is_a_sentence(tmp_path: Path, text: str | None, fault: str) -> None:
    if text is not None:
        (tmp_path / "password").write_text(text)
    run = read_secret(tmp_path / "password")
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith(f"turret: the secret {tmp_path}/password {fault}. On the host it is in ")
    assert run.stderr.endswith("deploy/setup makes it\n" if text is None else "deploy/setup makes another\n")


@pytest.mark.nightly
def test_setup_makes_secrets_once_and_selects_the_profile(tmp_path: Path) -> None:
    """The project keeps the name that Compose gives it without .env, so that its volumes are found again."""
    checkout = tmp_path / "My_Shop.2"
    (checkout / "deploy").mkdir(parents=True)
    shutil.copy(DEPLOY / "setup", checkout / "deploy" / "setup")

    def set_up() -> str:
        command = [str(checkout / "deploy" / "setup")]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    (checkout / ".env").write_text("TURRET_WORKERS=2")
    secrets = checkout / "deploy" / "secrets"
    (secrets / "redis").mkdir(parents=True)
    (secrets / "redis" / "password").touch()  # left empty, as if it had been interrupted
    assert "made deploy/secrets/redis/password" in set_up()
    before = (secrets / "redis" / "password").read_text()
    assert read_secret(secrets / "redis" / "password").returncode == 0
    assert secrets.stat().st_mode & 0o777 == 0o700
    assert "made" not in set_up()
    assert (secrets / "redis" / "password").read_text() == before
    assert (checkout / ".env").read_text().splitlines() == [
        "TURRET_WORKERS=2",
        "COMPOSE_FILE=deploy/production.yml",
        "COMPOSE_PROJECT_NAME=my_shop2",
    ]


@pytest.mark.process
@pytest.mark.parametrize(
    ("tool", "options", "patterns"),
    [
        # Scripts of containers read a file that is only there, /deploy/secret.sh (SC1091).
        ("shellcheck", ["--external-sources", "--exclude", "SC1091"], SHELL),
        # The wheel of the code is made here, so its version is that of the code (DL3013).
        ("hadolint", ["--ignore", "DL3013"], ["../Dockerfile"]),
    ],
)
def test_linters_find_nothing(tool: str, options: list[str], patterns: list[str]) -> None:
    require(tool)
    files = [str(path) for pattern in patterns for path in DEPLOY.glob(pattern)]
    command = [str(Path(sys.executable).with_name(tool)), *options, *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert files
    assert done.returncode == 0, done.stdout
