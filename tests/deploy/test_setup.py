"""deploy/setup, and the script that reads its secrets."""

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
