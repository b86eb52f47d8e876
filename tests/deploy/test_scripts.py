"""deploy/roll, backup and restore with a stand-in for the engine; `make test-compose` has a real one."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
# Linters of the environment, or of the machine.
SEARCHED = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
SHELLCHECK, HADOLINT = (shutil.which(name, path=SEARCHED) for name in ("shellcheck", "hadolint"))
SCRIPTS = ["backup", "demo.sh", "restore", "roll", "sbom", "setup"]
# Replicas are files, each with the identity of its image; a replica of the image `broken` is never healthy.
DOCKER = r"""#!/usr/bin/env bash
cd "$STATE"
last="${*: -1}"
case "$*" in
  "image inspect --format"*) [ -e "images/${last#turret:}" ] && cat "images/${last#turret:}" ;;
  "image inspect"*) [ -e "images/${last#turret:}" ] ;;
  "images turret"*) ls images ;;
  "compose ps -q service") ls replicas ;;
  "compose up"*scale*)
    echo "up ${TURRET_TAG}" >>log
    cp "images/$TURRET_TAG" "replicas/r$(date +%N)" ;;
  *.State.Health.Status*) if grep -q broken "replicas/$last"; then echo starting; else echo healthy; fi ;;
  *.RestartCount*) echo 0 ;;
  *"{{.Image}}"*) cat "replicas/$last" ;;
  *.Config.Image*) echo "turret:$(cat "replicas/$last")" ;;
  *"{{.Name}}"*) echo "/$last" ;;
  "stop "*) echo "stop $(cat "replicas/$last") of $(ls replicas | wc -l)" >>log ;;
  "rm "*) rm "replicas/$last" ;;
  "logs "*) echo "setting port can't be 'nowhere'" ;;
  *"redis true") ;;
  *"cli --rdb -") printf 'REDIS0011data' ;;
  *"pack.py state" | *"pack.py bundles") printf tar ;;
  *"pack.py empty" | *"redis empty") [ ! -e full ] ;;
  *) echo "$*" >>log; cat >/dev/null ;;
esac
"""


@pytest.fixture
def engine(tmp_path: Path) -> dict[str, str]:
    """The environment of a script: two replicas of the image `old`, and the images `new` and `broken`."""
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
    return {
        "PATH": f"{docker.parent}:{os.environ['PATH']}",
        "STATE": str(state),
        "TURRET_ENV_FILE": str(tmp_path / "env"),
        "ROLL_SECONDS": "2",
    }


def run(script: str, engine: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    command = [str(DEPLOY / script), *words]
    return subprocess.run(command, env=engine, capture_output=True, text=True, timeout=60, check=False)


def replicas(engine: dict[str, str]) -> list[str]:
    return sorted(path.read_text() for path in Path(engine["STATE"], "replicas").iterdir())


def log(engine: dict[str, str]) -> list[str]:
    path = Path(engine["STATE"], "log")
    return path.read_text().splitlines() if path.exists() else []


def test_a_roll_replaces_one_replica_after_the_other(engine: dict[str, str]) -> None:
    """Each new one is there before an old one stops."""
    done = run("roll", engine, "new")
    assert done.returncode == 0, done.stderr
    assert replicas(engine) == ["new", "new"]
    assert log(engine) == ["up new", "stop old of 3"] * 2
    assert done.stdout.endswith("all 2 replicas run turret:new; the way back: deploy/roll old\n")
    assert Path(engine["TURRET_ENV_FILE"]).read_text() == "TURRET_TAG=new\n"
    assert run("roll", engine, "old").returncode == 0
    assert replicas(engine) == ["old", "old"]
    assert Path(engine["TURRET_ENV_FILE"]).read_text() == "TURRET_TAG=old\n"


def test_a_roll_to_the_running_image_changes_nothing(engine: dict[str, str]) -> None:
    assert run("roll", engine, "old").returncode == 0
    assert log(engine) == []


def test_a_roll_to_an_unknown_tag_is_a_sentence(engine: dict[str, str]) -> None:
    done = run("roll", engine, "missing")
    assert done.returncode == 1
    assert done.stderr == (
        "deploy/roll: there is no image turret:missing on this machine. There are: broken new old. Build it "
        "(make images TAG=missing) or pull it\n"
    )
    assert log(engine) == []


def test_a_roll_stops_at_a_replica_that_never_gets_ready(engine: dict[str, str]) -> None:
    """It is removed, the old ones still answer, and the way back is named."""
    done = run("roll", engine, "broken")
    assert done.returncode == 1
    assert "setting port can't be 'nowhere'" in done.stderr + done.stdout
    assert "wasn't ready within 2 seconds and was removed" in done.stderr
    assert "2 replicas still answer. The way back: deploy/roll old" in done.stderr
    assert replicas(engine) == ["old", "old"]
    assert not Path(engine["TURRET_ENV_FILE"]).exists()


def test_a_backup_is_a_folder_with_checksums_for_its_owner_alone(
    engine: dict[str, str], tmp_path: Path
) -> None:
    done = run("backup", engine, str(tmp_path / "copy"))
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "copy"
    assert folder.stat().st_mode & 0o777 == 0o700
    sums = dict(line.split("  ")[::-1] for line in (folder / "SHA256SUMS").read_text().splitlines())
    assert sums == {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in ("redis.rdb", "state.tar", "bundles.tar")
    }
    assert "is not an empty folder" in run("backup", engine, str(folder)).stderr


def damage(folder: Path, how: str) -> None:
    if how == "changed":
        (folder / "redis.rdb").write_text("REDIS0011Data")
    elif how == "lost":
        (folder / "state.tar").unlink()
    elif how == "unlisted":
        lines = (folder / "SHA256SUMS").read_text().splitlines()
        (folder / "SHA256SUMS").write_text("\n".join(lines[:-1]) + "\n")
    else:
        (folder / "SHA256SUMS").unlink()


@pytest.mark.parametrize(
    ("how", "fault"),
    [
        ("changed", "is damaged: redis.rdb differs from its checksum. Nothing was changed"),
        ("lost", "lacks state.tar. Nothing was changed"),
        ("unlisted", "doesn't name bundles.tar. Nothing was changed"),
        ("incomplete", "is not a complete backup: it has no SHA256SUMS. Nothing was changed"),
    ],
)
def test_a_damaged_backup_is_refused_before_anything_is_touched(
    engine: dict[str, str], tmp_path: Path, how: str, fault: str
) -> None:
    folder = tmp_path / "copy"
    run("backup", engine, str(folder))
    damage(folder, how)
    done = run("restore", engine, "--replace", str(folder))
    assert done.returncode == 1
    assert fault in done.stderr
    assert log(engine) == []


def test_a_restore_into_volumes_that_hold_something_needs_a_word(
    engine: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    run("backup", engine, str(folder))
    Path(engine["STATE"], "full").touch()
    done = run("restore", engine, str(folder))
    assert done.returncode == 1
    assert (
        "are not empty. Nothing was changed; deploy/restore --replace deletes what they hold" in done.stderr
    )
    assert log(engine) == []
    assert run("restore", engine, "--replace", str(folder)).returncode == 0
    steps = " ".join(log(engine))
    assert (
        steps.index("stop service redis") < steps.index("clear") < steps.index("unpack") < steps.index("load")
    )


def pack(folder: Path, action: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """The script that runs in a container, on a folder of the test."""
    text = (DEPLOY / "production" / "pack.py").read_text("utf-8").replace('"/app/var"', repr(str(folder)))
    command = [sys.executable, "-c", text, action]
    return subprocess.run(command, input=given, capture_output=True, check=False)


def test_volumes_are_packed_and_unpacked(tmp_path: Path) -> None:
    """With the state of the folder of bundles, and without folders that are being written."""
    var = tmp_path / "var"
    for name in ("bundles/first", "bundles/.staging", "bundles/.gate"):
        (var / name).mkdir(parents=True)
    for name in ("keys.json", "bundles/current", "bundles/routes.json", "bundles/.gate/first.json"):
        (var / name).write_text(name)
    (var / "bundles/first/manifest.json").write_text("{}")
    (var / "bundles/first").chmod(0o555)
    (var / "bundles/.staging/part").write_text("half")
    archives = [pack(var, action).stdout for action in ("state", "bundles")]
    other = tmp_path / "other"
    (other / "bundles").mkdir(parents=True)
    assert pack(other, "empty").returncode == 0
    for archive in archives:
        assert pack(other, "unpack", archive).returncode == 0
    found = {str(path.relative_to(other)) for path in other.rglob("*") if path.is_file()}
    packed = {"keys.json", "bundles/current", "bundles/routes.json", "bundles/.gate/first.json"}
    assert found == packed | {"bundles/first/manifest.json"}
    assert pack(other, "empty").returncode == 1
    (var / "bundles/first").chmod(0o755)
    (other / "bundles/first").chmod(0o755)
    assert pack(other, "clear").returncode == 0
    assert pack(other, "empty").returncode == 0


def test_a_damaged_archive_does_not_leave_the_folder(tmp_path: Path) -> None:
    var = tmp_path / "var"
    (var / "bundles").mkdir(parents=True)
    (tmp_path / "escaped").write_text("before")
    archive = tmp_path / "bad.tar"
    with tarfile.open(archive, "w") as file:
        file.add(tmp_path / "escaped", "../escaped")
    (tmp_path / "escaped").write_text("after")
    assert pack(var, "unpack", archive.read_bytes()).returncode != 0
    assert (tmp_path / "escaped").read_text() == "after"


@pytest.mark.skipif(SHELLCHECK is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_finds_nothing(name: str) -> None:
    run = subprocess.run([str(SHELLCHECK), str(DEPLOY / name)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


@pytest.mark.skipif(SHELLCHECK is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("path", sorted((DEPLOY / "production").rglob("*.sh")), ids=lambda path: path.name)
def test_shellcheck_finds_nothing_in_what_containers_run(path: Path) -> None:
    """They read a file of the container, /deploy/secret.sh (SC1091)."""
    command = [str(SHELLCHECK), "--exclude", "SC1091", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed")
def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    """The wheel of the code is made here, so its version is that of the code (DL3013)."""
    command = [str(HADOLINT), "--ignore", "DL3013", str(ROOT / "Dockerfile")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
