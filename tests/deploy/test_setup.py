"""deploy/setup, and the scripts that start the containers with its secrets."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.places import ROOT

pytestmark = pytest.mark.nightly
SCRIPTS = ROOT / "deploy" / "production"
PASSWORD = "0123456789abcdef"


def read_secret(path: Path, *before: str) -> "subprocess.CompletedProcess[str]":
    command = f'. {SCRIPTS / "secret.sh"}; read_secret "{path}"'
    return subprocess.run([*before, "sh", "-c", command], capture_output=True, text=True, check=False)


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


def run_script(name: str, folder: Path, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a start script with its folders replaced, and programs that print their arguments."""
    (folder / "redis").mkdir(exist_ok=True)
    (folder / "redis" / "password").write_text(PASSWORD)
    for program in ("turret", "setpriv", "chown"):
        path = folder / program
        path.write_text(
            f'#!/bin/sh\necho {program} "$@" "${{TURRET_STORE:-}}"\n[ {program} != setpriv ] || cat\n'
        )
        path.chmod(0o755)
    script = (SCRIPTS / name).read_text("utf-8").replace("/run/secrets/redis", str(folder / "redis"))
    script = script.replace("/deploy", str(SCRIPTS))
    environment = {"PATH": f"{folder}:/usr/bin:/bin", **variables}
    command = ["sh", "-c", script, name, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_the_service_gets_the_address_of_the_redis_with_its_password(
    tmp_path: Path,
) -> None:
    run = run_script("service.sh", tmp_path, "serve", "--wait")
    assert run.stdout == f"turret serve --wait redis://:{PASSWORD}@redis:6379/0\n"
    run = run_script("service.sh", tmp_path, "--history", TURRET_COMMAND="retrain --url http://service:8001")
    assert run.stdout.startswith("turret retrain --url http://service:8001 --history ")
    run = run_script("nightly.sh", tmp_path, "daily")
    assert run.returncode == 2
    assert "TURRET_RETRAIN_SECONDS can't be 'daily'; give a number of seconds" in run.stderr


def test_the_redis_reads_its_password_from_standard_input(tmp_path: Path) -> None:
    run = run_script("redis.sh", tmp_path, "--appendonly", "yes")
    assert PASSWORD not in run.stdout.replace(f"requirepass {PASSWORD}\n", "")
    assert f"requirepass {PASSWORD}\n" in run.stdout
    assert "redis-server - --bind 0.0.0.0 --appendonly yes" in run.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder of the repository, as far as deploy/setup reads it."""
    folder = tmp_path / "My_Shop.2"
    (folder / "deploy").mkdir(parents=True)
    shutil.copy(ROOT / "deploy" / "setup", folder / "deploy" / "setup")
    return folder


def set_up(folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [str(folder / "deploy" / "setup")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_setup_makes_secrets_once_and_selects_the_profile(checkout: Path) -> None:
    """The project keeps the name that Compose gives it without .env, so that its volumes are found again."""
    (checkout / ".env").write_text("TURRET_WORKERS=2")
    secrets = checkout / "deploy" / "secrets"
    (secrets / "redis").mkdir(parents=True)
    (secrets / "redis" / "password").touch()  # left empty, as if it had been interrupted
    assert "made deploy/secrets/redis/password" in set_up(checkout).stdout
    before = (secrets / "redis" / "password").read_text()
    assert read_secret(secrets / "redis" / "password").returncode == 0
    assert secrets.stat().st_mode & 0o777 == 0o700
    again = set_up(checkout)
    assert again.returncode == 0
    assert "made" not in again.stdout
    assert (secrets / "redis" / "password").read_text() == before
    assert (checkout / ".env").read_text().splitlines() == [
        "TURRET_WORKERS=2",
        "COMPOSE_FILE=deploy/production.yml",
        "COMPOSE_PROJECT_NAME=my_shop2",
    ]
