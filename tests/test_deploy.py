"""The images, the Compose file and the page on deployment, checked without a container engine."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.http_candidates import free_port, nginx_configuration
from tests.support.command_line import check_call
from turret.data.extras import EXTRA_OF
from turret.service.http.app import create_app
from turret.service.settings import Settings, read_settings
from turret.service.wire.refusals import HEAD_BYTES

ROOT = Path(__file__).parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PAGE = (ROOT / "docs" / "deploy.md").read_text("utf-8")
COMMANDS = [line.strip() for line in PAGE.splitlines() if line.startswith("    ")]
SERVING_ONLY = {
    "pydantic_settings",
    "fastapi",
    "starlette",
    "uvicorn",
    "orjson",
    "redis",
    "prometheus_client",
}
TRAINING_ONLY = {"torch", "polars", "onnx", "onnxscript", "tensorboard", "pytest", "safetensors", "optuna"}


def stages() -> dict[str, list[str]]:
    """The instructions of each stage of the Dockerfile, after those of its base stages."""
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if begins := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            here = found[begins[2]] = [*found.get(begins[1], [])]
        elif line and not line.startswith("#"):
            here.append(line)
    return found


STAGES = stages()


def listed(*extras: str) -> list[Requirement]:
    """The requirements of an image, whose packages its lock has."""
    project = PROJECT["project"]
    wanted = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    return [Requirement(line) for lines in wanted for line in lines]


def installed_with(wanted: list[Requirement]) -> set[str]:
    """The packages that pip installs for some requirements, by the metadata of the installed ones."""
    found: set[tuple[str, str]] = set()
    waiting = [(one.name, extra) for one in wanted for extra in ("", *one.extras)]
    while waiting:
        name, extra = waiting.pop()
        if (canonicalize_name(name), extra) in found:
            continue
        found.add((canonicalize_name(name), extra))
        for needed in map(Requirement, requires(name) or ()):
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                waiting += [(needed.name, inner) for inner in ("", *needed.extras)]
    return {name for name, _ in found}


def test_the_serving_image_gets_nothing_of_training() -> None:
    found = installed_with(listed("serve"))
    assert {"fastapi", "uvicorn", "onnxruntime", "uvloop"} <= found
    assert not found & TRAINING_ONLY


def test_the_training_image_gets_what_training_needs() -> None:
    found = installed_with(listed("train", "history"))
    assert found >= TRAINING_ONLY - {"pytest"}
    assert not found & {"pytest", "fastapi", "uvicorn"}


def test_the_extra_for_histories_has_the_versions_of_the_others() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    assert set(extras["history"]) <= {*extras["train"], *extras["serve"]}


def test_histories_are_loaded_and_dumped_with_the_packages_of_their_extra(tmp_path: Path) -> None:
    """In the image of the trainer, which answers no requests."""
    log = "user_id,item_id,timestamp\n" + "".join(
        f"u{n % 3},i{n % 5},{1_700_000_000 + n}\n" for n in range(30)
    )
    (tmp_path / "log.csv").write_text(log)
    ours = {canonicalize_name(one.name) for one in listed("history")}
    refused = {*EXTRA_OF} - {module for module in EXTRA_OF if canonicalize_name(module) in ours | {"hiredis"}}
    assert {"fastapi", "torch"} <= refused
    script = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {refused!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refuse())
sys.argv[0] = "turret"
from turret.cli import main
main()
"""
    store = ["--store", f"sqlite:///{tmp_path}/h.sqlite"]
    for words in (["load", str(tmp_path / "log.csv")], ["dump", "--to", str(tmp_path / "dump.parquet")]):
        command = [sys.executable, "-c", script, "history", *words, *store]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert run.returncode == 0, run.stderr
        assert "30 events of 3 users" in run.stdout


@pytest.mark.parametrize("target", ["serve", "train"])
def test_an_image_installs_its_own_lock_and_then_the_code_alone(target: str) -> None:
    *locked, code = [line for line in STAGES[target] if "pip install" in line]
    assert any(f"/{target}.txt" in line for line in locked)
    assert all("--no-deps --require-hashes" in line for line in locked)
    assert "--no-deps /tmp/wheel/*.whl" in code
    copied = [line for line in STAGES[target] if line.startswith("COPY")]
    assert copied[-1] == "COPY --from=built /wheel /tmp/wheel"
    assert all("deploy/locks/" in line for line in copied[:-1])


@pytest.mark.parametrize("target", ["serve", "train"])
def test_an_image_is_labelled_with_its_version_and_revision(target: str) -> None:
    """In its last instruction, as both differ with each commit."""
    (label,) = (line for line in STAGES[target] if line.startswith("LABEL"))
    assert label == STAGES[target][-1]
    assert 'org.opencontainers.image.version="$VERSION"' in label
    assert 'org.opencontainers.image.revision="$REVISION"' in label


@pytest.mark.parametrize("target", ["serve", "train"])
def test_an_image_runs_turret_as_the_same_user_who_is_not_root(target: str) -> None:
    assert [line for line in STAGES[target] if line.startswith("USER")] == ["USER 1000:1000"]
    assert STAGES["base"] == STAGES[target][: len(STAGES["base"])]
    assert any("useradd --uid 1000" in line for line in STAGES["base"])
    assert 'ENTRYPOINT ["turret"]' in STAGES[target]
    (command,) = (line for line in STAGES[target] if line.startswith("CMD"))
    words = yaml.safe_load(command.removeprefix("CMD"))
    if words != ["--help"]:
        check_call(words)


def test_the_images_are_made_of_every_package_and_of_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    links = {path.name for path in (ROOT / "turret").iterdir() if path.is_symlink()}
    files = {"pyproject.toml", "README.md", "LICENSE", "deploy/locks"}
    assert "*" in lines
    assert let_in == links | files | {"turret"}


def test_compose_starts_the_service_alone_and_both_share_the_bundles() -> None:
    services = COMPOSE["services"]
    assert [name for name, one in services.items() if "profiles" not in one] == ["service"]
    ours = [services["service"], services["trainer"]]
    assert {one["build"]["target"] for one in (*ours, services["history"])} <= set(STAGES)
    assert all("bundles:/app/var/bundles" in one["volumes"] for one in ours)
    assert {volume.split(":")[0] for one in services.values() for volume in one["volumes"]} == {
        *COMPOSE["volumes"],
        "${TURRET_DATA",
    }


def test_no_container_that_opens_models_but_the_service_has_the_volume_of_keys_and_histories() -> None:
    """A process that writes models must not create keys or read histories."""
    services = COMPOSE["services"]
    volumes = {
        name: {
            place: volume
            for volume, place in (whole.split(":")[:2] for whole in one["volumes"] if whole[0] != "$")
        }
        for name, one in services.items()
    }
    given = services["service"]["environment"]
    settings = Settings.model_validate(
        {
            "admin_key_file": given["TURRET_ADMIN_KEY_FILE"],
            "store": re.sub(r"^\$\{\w+:-(.*)\}$", r"\1", given["TURRET_STORE"]),
        }
    )
    kept = [settings.keys, settings.admin_key_file, Path(settings.store.removeprefix("sqlite:///"))]
    for path in kept:
        places = sorted(place for place in volumes["service"] if Path("/app", path).is_relative_to(place))
        assert volumes["service"][places[-1]] == "var"
    having = [name for name, mounted in volumes.items() if "var" in mounted.values()]
    assert having == ["service", "history"]
    assert "bundles" not in volumes["history"].values()


def test_histories_move_between_the_store_of_the_service_and_the_files_of_the_trainer() -> None:
    """The address of the store is the same in both containers, and the folder belongs to the user."""
    service, history, trainer = (COMPOSE["services"][name] for name in ("service", "history", "trainer"))
    assert history["entrypoint"] == ["turret", "history"]
    assert history["environment"]["TURRET_STORE"] == service["environment"]["TURRET_STORE"]
    assert "var:/app/var" in service["volumes"]
    assert "var:/app/var" in history["volumes"]
    assert "work:/app/work" in history["volumes"]
    assert "work:/app/var" in trainer["volumes"]
    assert (history["image"], history["build"]) == (trainer["image"], trainer["build"])
    assert any(
        "mkdir -p" in line and "chown -R turret: /app/var /app/work" in line for line in STAGES["base"]
    )


def test_only_the_service_and_its_histories_reach_the_redis() -> None:
    """It has no password, and holds the histories."""
    services = COMPOSE["services"]
    assert services["redis"]["networks"] == ["store"]
    assert services["service"]["networks"] == services["history"]["networks"] == ["default", "store"]
    assert "networks" not in services["trainer"]
    assert COMPOSE["networks"] == {"store": {"internal": True}}


def test_the_trainer_gets_no_key_but_the_one_that_is_made_for_it() -> None:
    assert services_environment("trainer") == {"TURRET_ADMIN_KEY": "${TURRET_TRAINER_KEY:-}"}
    assert "TURRET_ADMIN_KEY" not in services_environment("service")


def services_environment(name: str) -> dict[str, str]:
    given: dict[str, str] = COMPOSE["services"][name]["environment"]
    return given


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_a_container_has_no_capability_that_it_does_not_need(name: str) -> None:
    one = COMPOSE["services"][name]
    assert one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]
    # The image of Redis begins as root, and goes on as its own user.
    assert set(one.get("cap_add", ())) == ({"CHOWN", "SETGID", "SETUID"} if name == "redis" else set())
    assert one.get("read_only", False) == (name != "trainer")


def test_what_compose_passes_on_are_settings_that_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the defaults of the file; the memory limit is an option of Compose."""
    given = COMPOSE["services"]["service"]["environment"]
    for name, value in given.items():
        monkeypatch.setenv(name, re.sub(r"^\$\{\w+:-(.*)\}$", r"\1", value))
    settings = read_settings()
    assert (settings.workers, settings.admin_host, settings.require_keys) == (1, "0.0.0.0", False)
    grace = int(COMPOSE["services"]["service"]["stop_grace_period"].removesuffix("s"))
    assert grace > settings.drain_delay + settings.drain_seconds


def test_the_redis_of_compose_loses_nothing_that_it_was_given() -> None:
    """It has the settings that docs/histories.md requires."""
    command = COMPOSE["services"]["redis"]["command"]
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command
    assert "redis:/data" in COMPOSE["services"]["redis"]["volumes"]
    assert "ports" not in COMPOSE["services"]["redis"]


@pytest.mark.parametrize("words", ["versions", "activate first", "rollback", "recommend --user me"])
def test_what_the_trainer_asks_of_the_service_needs_nothing_that_serves(words: str, tmp_path: Path) -> None:
    """It ends with a message about the service or the folder, not about a missing package."""
    place = [] if words.startswith("recommend") else ["--bundles", str(tmp_path)]
    url = [] if words == "versions" else ["--url", "http://127.0.0.1:9"]
    (tmp_path / "admin.key").write_text("key")
    script = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {SERVING_ONLY!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refuse())
sys.argv[0] = "turret"
from turret.cli import main
main()
"""
    command = [sys.executable, "-c", script, *words.split(), *place, *url]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in run.stderr
    assert "pip install" not in run.stderr
    assert "no service answers" in run.stderr or run.returncode == 0


def test_a_command_of_the_other_image_says_which_one_has_it(tmp_path: Path) -> None:
    refused = "import sys; sys.modules['pydantic_settings'] = None; import turret.cli; turret.cli.main()"
    command = [sys.executable, "-c", refused, "keys", "list"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 1
    assert run.stderr.startswith(
        "turret: pydantic_settings is not installed; run: pip install 'turret[serve]'"
    )
    assert "container service" in run.stderr


def test_the_admin_port_is_reached_from_the_trainer_and_from_nowhere_else() -> None:
    service = COMPOSE["services"]["service"]
    assert service["environment"]["TURRET_ADMIN_HOST"] == "0.0.0.0"
    assert all(one.endswith(":8000") for one in service["ports"])
    for line in COMMANDS:
        for url in re.findall(r"activate .*--url (\S+)", line):
            within = "exec service" in line
            assert url == ("http://127.0.0.1:8001" if within else "http://service:8001")
            assert within or line.startswith("TURRET_TRAINER_KEY=")


def test_the_folder_for_own_events_is_there_and_stays_empty_in_git() -> None:
    """Otherwise the engine creates it, owned by root."""
    (mounted,) = (one for one in COMPOSE["services"]["trainer"]["volumes"] if one.endswith(":/data:ro"))
    default = re.search(r":-(.+?)\}", mounted)
    assert default
    assert (ROOT / default[1] / ".gitignore").read_text("utf-8") == "*\n!.gitignore\n"


@pytest.mark.parametrize("line", [line for line in COMMANDS if "docker compose" in line])
def test_a_command_of_the_page_names_what_exists(line: str) -> None:
    _, called = line.split("docker compose ")
    words = shlex.split(called)
    if words[0] == "--profile":
        assert words[1] in {name for one in COMPOSE["services"].values() for name in one.get("profiles", ())}
        words = words[2:]
    match words:
        case ["run", "--rm", "trainer", *call]:
            check_call(call)
        case ["run", "--rm", "history", *call]:
            check_call(["history", *call])
        case ["exec", "service", "turret", *call] | ["run", "--rm", "service", *call]:
            check_call(call)
        case ["exec", "service", "cat", _]:
            pass
        case _:
            assert words in (["up", "-d", "--build"], ["up", "-d"], ["down"], ["build"])


def test_the_variables_of_the_page_are_those_of_compose() -> None:
    named = set(re.findall(r"\b([A-Z][A-Z_]+)=", "\n".join(COMMANDS)))
    assert named == {
        "TURRET_DATA",
        "TURRET_PUBLISH",
        "TURRET_WORKERS",
        "TURRET_STORE",
        "TURRET_TRAINER_KEY",
        "PIP_EXTRA_INDEX_URL",
    }
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    assert all(name in text for name in named)


def test_the_addresses_of_the_page_are_calls_of_the_service(bundles: Path) -> None:
    given = {"bundles": bundles, "store": "memory://", "admin_port": None}
    app = create_app(Settings.model_validate(given))
    paths = set(TestClient(app).get("/openapi.json").json()["paths"])
    asked = {path for line in COMMANDS for path in re.findall(r"http://127\.0\.0\.1:8000(/\S+)", line)}
    assert asked
    assert asked | {"/livez", "/admin/rollback"} <= paths


@pytest.mark.parametrize("files", ["nginx.conf", "production/proxy/*.conf"])
def test_the_proxy_lets_nothing_through_that_the_service_would_refuse_for_its_size(files: str) -> None:
    text = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "deploy").glob(files)))
    defaults = {name: field.default for name, field in Settings.model_fields.items()}

    def value(directive: str) -> int:
        return int(re.search(rf"^ +{directive} (\d+)", text, re.MULTILINE)[1])  # type: ignore[index]

    buffers, kilobytes = re.search(r"large_client_header_buffers (\d+) (\d+)k", text).groups()  # type: ignore[union-attr]
    assert (int(buffers) * int(kilobytes) + value("client_header_buffer_size")) * 1024 < HEAD_BYTES - 1024
    assert value("client_max_body_size") == defaults["body_limit"]
    assert value("proxy_read_timeout") > defaults["request_seconds"]


def test_the_proxy_closes_its_connections_before_the_service_does() -> None:
    text = (ROOT / "deploy" / "nginx.conf").read_text("utf-8")
    (upstream,) = re.findall(r"upstream turret \{(.*?)\}", text, re.DOTALL)
    keep_alive = Settings.model_fields["keep_alive_seconds"].default
    assert int(upstream.split("keepalive_timeout ")[1].split("s")[0]) < keep_alive


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx_takes_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "nginx.conf").write_text(nginx_configuration(free_port(), free_port()))
    command = ["nginx", "-t", "-p", str(tmp_path), "-c", "nginx.conf", "-e", "error.log", "-g", "pid pid;"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
