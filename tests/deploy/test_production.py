"""The Compose file of the production profile, and the scripts that start its containers."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.rights import BOUND, needs_root
from turret.service.settings import Settings, read_settings

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "production.yml").read_text("utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
SCRIPTS = DEPLOY / "production"
PASSWORD = "0123456789abcdef"


def environment_of(name: str) -> dict[str, str]:
    given = SERVICES[name].get("environment", {})
    return {key: re.sub(r"^\$\{\w+:-(.*)\}$", r"\1", value) for key, value in given.items()}


def test_the_profile_starts_a_proxy_two_replicas_and_a_redis() -> None:
    assert {name for name, one in SERVICES.items() if "profiles" not in one} == {"proxy", "service", "redis"}
    assert SERVICES["service"]["scale"] == "${TURRET_REPLICAS:-2}"


def test_the_proxy_has_the_only_ports_but_for_operators() -> None:
    published = {name: one["ports"] for name, one in SERVICES.items() if "ports" in one}
    assert published.keys() == {"proxy", "grafana"}
    assert all(port.startswith("${TURRET_PUBLISH") for ports in published.values() for port in ports)
    assert published["grafana"] == ["${TURRET_PUBLISH_GRAFANA:-127.0.0.1:3000}:3000"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_has_no_capability_that_it_does_not_need(name: str) -> None:
    one = SERVICES[name]
    assert one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]
    assert set(one.get("cap_add", ())) == ({"CHOWN", "SETGID", "SETUID"} if name == "redis" else set())
    # They compile samplers, and keep their state in the image's folders.
    assert one.get("read_only", False) == (name not in ("trainer", "retrain", "nightly", "grafana"))


def test_a_container_sees_the_volumes_of_its_task_alone() -> None:
    """Keys are for the service, the trainer has neither them nor the histories."""
    volumes = {
        name: {volume.split(":")[0] for volume in one["volumes"]} & COMPOSE["volumes"].keys()
        for name, one in SERVICES.items()
    }
    assert {name for name, seen in volumes.items() if "var" in seen} == {"service", "admin"}
    assert {name for name, seen in volumes.items() if "redis" in seen} == {"redis"}
    assert volumes["trainer"] == {"work", "bundles"}
    assert volumes["history"] == {"work"}
    assert volumes["proxy"] == set()


def test_every_container_that_reads_the_items_again_has_your_own_files() -> None:
    """Prepared data names the file of its items by its path in the trainer, and an append reads it."""
    mounted = {name for name, one in SERVICES.items() if any(v.endswith(":/data:ro") for v in one["volumes"])}
    assert mounted == {"trainer", "history", "retrain", "nightly"}


def test_only_those_who_need_the_redis_reach_it_and_have_its_password() -> None:
    reaching = {name for name, one in SERVICES.items() if "store" in one["networks"]}
    knowing = {
        name for name, one in SERVICES.items() if any("/redis:/run/secrets" in v for v in one["volumes"])
    }
    assert reaching == knowing == {"service", "redis", "admin", "history", "retrain", "nightly"}
    assert COMPOSE["networks"] == {"store": {"internal": True}}


def test_the_redis_loses_nothing_that_it_was_given() -> None:
    command = " ".join(SERVICES["redis"]["command"])
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command
    assert "redis:/data" in SERVICES["redis"]["volumes"]


def test_the_settings_of_the_service_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment_of("service").items():
        monkeypatch.setenv(name, value)
    settings = read_settings()
    grace = int(SERVICES["service"]["stop_grace_period"].removesuffix("s"))
    assert grace > settings.drain_delay + settings.drain_seconds
    assert Settings.model_fields["drain_delay"].default == settings.drain_delay


def test_every_variable_is_on_the_page_with_its_default() -> None:
    text = (DEPLOY / "production.yml").read_text("utf-8")
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8").split("\n## Production\n")[1]
    rows = dict(re.findall(r"^\| (`[A-Z_`, ]+`) \|\s*(.*?)\s*\|", page, re.MULTILINE))
    defaults = {
        name: given
        for names, values in rows.items()
        for name, given in zip(re.findall(r"\w+", names), [*values.split(", "), *[""] * 9], strict=False)
    }
    for name, default in set(re.findall(r"\$\{(\w+):-([^}]*)\}", text)):
        assert name in defaults, name
        assert defaults[name] in (f"`{default}`", "none", "", f"`{default}` (below `deploy`)"), name


def test_every_file_that_is_mounted_exists() -> None:
    for one in SERVICES.values():
        for volume in one["volumes"]:
            if volume.startswith("./"):
                assert (DEPLOY / volume.split(":")[0]).exists(), volume
    assert {SERVICES["service"]["build"]["target"], SERVICES["trainer"]["build"]["target"]} == {
        "serve",
        "train",
    }


def read_secret(path: Path, *before: str) -> "subprocess.CompletedProcess[str]":
    command = f'. {SCRIPTS / "secret.sh"}; read_secret "{path}"'
    return subprocess.run([*before, "sh", "-c", command], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("text", [PASSWORD, f"{PASSWORD}\n", "a-b_C" * 5])
def test_a_secret_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "password").write_text(text)
    assert read_secret(tmp_path / "password").stdout == f"{text.strip()}\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, "is missing"),
        ("", "has to have 16 to 128 characters"),
        ("short", "has to have 16 to 128 characters"),
        (PASSWORD * 9, "has to have 16 to 128 characters"),
        (f"{PASSWORD}@redis:6379", "has characters other than letters, digits, - and _"),
        (f"{PASSWORD}\n{PASSWORD}", "has characters other than letters, digits, - and _"),
    ],
)
def test_a_faulty_secret_is_a_sentence(tmp_path: Path, text: str | None, fault: str) -> None:
    if text is not None:
        (tmp_path / "password").write_text(text)
    run = read_secret(tmp_path / "password")
    assert run.returncode == 1
    assert run.stdout == ""
    remedy = "deploy/setup makes it" if text is None else "delete it, and deploy/setup makes another"
    assert run.stderr == (
        f"turret: the secret {tmp_path}/password {fault}. On the host it is in deploy/secrets (or "
        f"TURRET_SECRETS); {remedy}\n"
    )


@needs_root
def test_a_secret_that_can_not_be_read_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "password").chmod(0)
    run = read_secret(tmp_path / "password", *BOUND)
    assert run.returncode == 1
    assert "can't be read by user 0. " in run.stderr
    assert run.stderr.endswith("chmod 444 it, in a folder that only you can enter\n")


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
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=20)


def test_the_service_gets_the_address_of_the_redis_with_its_password(tmp_path: Path) -> None:
    run = run_script("service.sh", tmp_path, "serve", "--wait")
    assert run.stdout == f"turret serve --wait redis://:{PASSWORD}@redis:6379/0\n"
    run = run_script("service.sh", tmp_path, "--history", TURRET_COMMAND="retrain --url http://service:8001")
    assert run.stdout.startswith("turret retrain --url http://service:8001 --history ")


def test_the_redis_reads_its_password_from_standard_input(tmp_path: Path) -> None:
    run = run_script("redis.sh", tmp_path, "--appendonly", "yes")
    assert PASSWORD not in run.stdout.replace(f"requirepass {PASSWORD}\n", "")
    assert f"requirepass {PASSWORD}\n" in run.stdout
    assert "redis-server - --bind 0.0.0.0 --appendonly yes" in run.stdout


@pytest.mark.parametrize("seconds", ["", "daily", "0"])
def test_a_schedule_that_is_no_number_is_a_sentence(tmp_path: Path, seconds: str) -> None:
    run = run_script("nightly.sh", tmp_path, seconds)
    assert run.returncode == 2
    assert run.stderr == (
        f"turret: TURRET_RETRAIN_SECONDS can't be '{seconds}'; give a number of seconds, such as 86400\n"
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder of the repository, as far as deploy/setup reads it."""
    folder = tmp_path / "My_Shop.2"
    (folder / "deploy").mkdir(parents=True)
    shutil.copy(DEPLOY / "setup", folder / "deploy" / "setup")
    return folder


def set_up(folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(folder / "deploy" / "setup")], capture_output=True, text=True, check=False, timeout=20
    )


def test_setup_makes_secrets_once_and_selects_the_profile(checkout: Path) -> None:
    """The project keeps the name that Compose gives it without .env, so that its volumes are found again."""
    (checkout / ".env").write_text("TURRET_WORKERS=2")
    assert "made deploy/secrets/redis/password" in set_up(checkout).stdout
    password = checkout / "deploy" / "secrets" / "redis" / "password"
    before = password.read_text()
    assert read_secret(password).returncode == 0
    assert (checkout / "deploy" / "secrets").stat().st_mode & 0o777 == 0o700
    again = set_up(checkout)
    assert again.returncode == 0
    assert "made" not in again.stdout
    assert password.read_text() == before
    assert (checkout / ".env").read_text().splitlines() == [
        "TURRET_WORKERS=2",
        "COMPOSE_FILE=deploy/production.yml",
        "COMPOSE_PROJECT_NAME=my_shop2",
    ]


def test_setup_makes_a_settings_file_for_its_owner_alone(checkout: Path) -> None:
    """It will hold a key."""
    set_up(checkout)
    assert (checkout / ".env").stat().st_mode & 0o777 == 0o600


def test_setup_replaces_a_secret_that_was_left_empty(checkout: Path) -> None:
    password = checkout / "deploy" / "secrets" / "redis" / "password"
    password.parent.mkdir(parents=True)
    password.touch()
    set_up(checkout)
    assert read_secret(password).returncode == 0


def test_setup_refuses_another_compose_file(checkout: Path) -> None:
    (checkout / ".env").write_text("COMPOSE_FILE=docker-compose.yml:mine.yml\n")
    done = set_up(checkout)
    assert done.returncode == 1
    assert done.stderr == (
        "deploy/setup: .env selects COMPOSE_FILE=docker-compose.yml:mine.yml; make it deploy/production.yml, "
        "and run deploy/setup again\n"
    )
    assert not (checkout / "deploy" / "secrets").exists()
