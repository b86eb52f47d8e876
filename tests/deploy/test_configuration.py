"""Compose files, manifests for Kubernetes and alerts: rights, volumes, networks, and names that exist."""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from benchmarks.docs import exported
from tests.support.places import ROOT
from turret.service.http.admission import BODY_LIMITS
from turret.service.settings import Settings, read_settings

PLAIN, PRODUCTION = "docker-compose.yml", "deploy/production.yml"
COMPOSE: dict[str, Any] = {
    name: yaml.safe_load((ROOT / name).read_text("utf-8")) for name in (PLAIN, PRODUCTION)
}
FILES = pytest.mark.parametrize("name", COMPOSE)
# They compile samplers, and keep their state in folders of the image.
WRITABLE = {"trainer", "retrain", "nightly", "grafana"}


def services(name: str) -> dict[str, Any]:
    found: dict[str, Any] = COMPOSE[name]["services"]
    return found


def environment_of(name: str, container: str) -> dict[str, str]:
    """The environment of a container, with the defaults of the file."""
    given = services(name)[container].get("environment", {})
    return {key: re.sub(r"^\$\{\w+:-(.*)\}$", r"\1", value) for key, value in given.items()}


def volumes_of(name: str, container: str) -> dict[str, str]:
    """The named volumes that a container has, by their place in it."""
    mounted = (one.split(":")[:2] for one in services(name)[container]["volumes"] if one[0] != "$")
    return {place: volume for volume, place in mounted if volume in COMPOSE[name]["volumes"]}


def mounting(name: str, pattern: str) -> set[str]:
    """The containers that mount a path of a pattern."""
    found = services(name).items()
    return {one for one, given in found if any(re.search(pattern, volume) for volume in given["volumes"])}


@FILES
def test_a_container_has_no_right_that_it_does_not_need(name: str) -> None:
    for container, given in services(name).items():
        assert given["cap_drop"] == ["ALL"], container
        assert given["security_opt"] == ["no-new-privileges:true"], container
        # The image of Redis begins as root, and goes on as its own user.
        added = {"CHOWN", "SETGID", "SETUID"} if container == "redis" else set()
        assert set(given.get("cap_add", ())) == added, container
        assert given.get("read_only", False) == (container not in WRITABLE), container


@FILES
def test_only_the_service_opens_models_beside_keys_and_histories(name: str) -> None:
    """A process that writes models must not create keys or read histories."""
    also = "history" if name == PLAIN else "admin"
    assert mounting(name, "^var:") == {"service", also}
    assert mounting(name, "^redis:") == {"redis"}
    assert set(volumes_of(name, "trainer").values()) == {"work", "bundles"}
    assert "bundles" not in volumes_of(name, "history").values()
    volumes, given = volumes_of(name, "service"), environment_of(name, "service")
    assert volumes["/app/var/bundles"] == "bundles"
    kept = [str(Settings().keys), given["TURRET_ADMIN_KEY_FILE"]]
    if "TURRET_STORE" in given:
        kept.append(given["TURRET_STORE"].removeprefix("sqlite:///"))
    for path in kept:
        places = sorted(place for place in volumes if Path("/app", path).is_relative_to(place))
        assert volumes[places[-1]] == "var"


@pytest.mark.parametrize(
    ("name", "reaching"),
    [
        (PLAIN, {"service", "redis", "history"}),
        (PRODUCTION, {"service", "redis", "history", "admin", "retrain", "nightly"}),
    ],
)
def test_only_those_who_need_the_redis_reach_it(name: str, reaching: set[str]) -> None:
    """It holds the histories. In the production profile it has a password, which nobody else knows."""
    assert {one for one, given in services(name).items() if "store" in given.get("networks", ())} == reaching
    assert COMPOSE[name]["networks"] == {"store": {"internal": True}}
    assert mounting(name, "/redis:/run/secrets") == (reaching if name == PRODUCTION else set())


@FILES
def test_the_redis_loses_nothing_that_it_was_given(name: str) -> None:
    """It has the settings that docs/histories.md requires."""
    command = services(name)["redis"]["command"]
    words = command if isinstance(command, str) else " ".join(command)
    assert "--appendonly yes" in words
    assert "--maxmemory-policy noeviction" in words
    assert volumes_of(name, "redis") == {"/data": "redis"}


@pytest.mark.parametrize(("name", "published"), [(PLAIN, {"service"}), (PRODUCTION, {"proxy", "grafana"})])
def test_no_port_is_open_to_other_machines_and_none_takes_admin_calls(name: str, published: set[str]) -> None:
    ports = {one: given["ports"] for one, given in services(name).items() if "ports" in given}
    assert ports.keys() == published
    for port in (port for some in ports.values() for port in some):
        assert re.match(r"\$\{TURRET_PUBLISH\w*:-127\.0\.0\.1:\d+\}", port)
        assert not port.endswith(":8001")
    assert environment_of(name, "service")["TURRET_ADMIN_HOST"] == "0.0.0.0"  # for the trainer's calls


@FILES
def test_the_settings_of_the_service_can_be_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in environment_of(name, "service").items():
        monkeypatch.setenv(variable, value)
    settings = read_settings()
    assert (settings.workers, settings.admin_host) == (1, "0.0.0.0")
    assert settings.require_keys == (name == PRODUCTION)
    grace = int(services(name)["service"]["stop_grace_period"].removesuffix("s"))
    assert grace > settings.drain_delay + settings.drain_seconds


@FILES
def test_the_trainer_gets_no_key_but_the_one_that_is_made_for_it(name: str) -> None:
    assert services(name)["trainer"]["environment"] == {"TURRET_ADMIN_KEY": "${TURRET_TRAINER_KEY:-}"}
    assert "TURRET_ADMIN_KEY" not in services(name)["service"]["environment"]


@pytest.mark.parametrize(
    ("name", "reading"),
    [(PLAIN, {"trainer", "history"}), (PRODUCTION, {"trainer", "history", "retrain", "nightly"})],
)
def test_every_container_that_reads_the_events_and_items_has_your_own_files(
    name: str, reading: set[str]
) -> None:
    """Prepared data names the file of its items by its path in the trainer, and an append reads it."""
    assert mounting(name, ":/data:ro$") == reading
    volumes = [volume for one in reading for volume in services(name)[one]["volumes"]]
    (default,) = {found for volume in volumes for found in re.findall(r":-(.+?)\}:/data:ro$", volume)}
    # The folder is there, and stays empty in git: otherwise the engine creates it, owned by root.
    assert ((ROOT / name).parent / default / ".gitignore").read_text("utf-8") == "*\n!.gitignore\n"


KUBERNETES = ROOT / "deploy" / "kubernetes"
KUSTOMIZATION = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text("utf-8"))
MANIFESTS: list[dict[str, Any]] = [
    document
    for name in KUSTOMIZATION["resources"]
    for document in yaml.safe_load_all((KUBERNETES / name).read_text())
]


def manifest(kind: str, name: str) -> dict[str, Any]:
    (found,) = (one for one in MANIFESTS if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def pod(kind: str, name: str) -> dict[str, Any]:
    spec = manifest(kind, name)["spec"]
    found: dict[str, Any] = spec.get("jobTemplate", {}).get("spec", spec)["template"]["spec"]
    return found


def test_the_kustomization_has_every_file() -> None:
    files = {path.name for path in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(KUSTOMIZATION["resources"]) == files


@pytest.mark.parametrize("document", MANIFESTS, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_a_manifest_follows_the_published_schema(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, "1.30", strict=True)


@pytest.mark.parametrize(
    ("kind", "name"), [("Deployment", "service"), ("StatefulSet", "redis"), ("CronJob", "retrain")]
)
def test_a_pod_runs_without_privileges(kind: str, name: str) -> None:
    """By the rules of the namespace, `restricted`."""
    spec = pod(kind, name)
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert not container["securityContext"]["allowPrivilegeEscalation"]


def test_a_replica_drains_before_it_is_ended() -> None:
    """The readiness probe fails before the drain ends, and the pod has time for both steps."""
    spec = pod("Deployment", "service")
    (container,) = spec["containers"]
    delay = float({one["name"]: one.get("value") for one in container["env"]}["TURRET_DRAIN_DELAY"])
    probe = container["readinessProbe"]
    assert probe["httpGet"]["path"] == "/readyz"
    assert delay > probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"]
    assert spec["terminationGracePeriodSeconds"] > delay + 10
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert manifest("Deployment", "service")["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_every_reference_has_its_object() -> None:
    claims = {one["metadata"]["name"] for one in MANIFESTS if one["kind"] == "PersistentVolumeClaim"}
    for kind, name in (("Deployment", "service"), ("CronJob", "retrain")):
        mounted = [one.get("persistentVolumeClaim") for one in pod(kind, name)["volumes"]]
        assert {one["claimName"] for one in mounted if one} <= claims
    labels = manifest("Deployment", "service")["spec"]["template"]["metadata"]["labels"]
    for kind in ("Service", "PodDisruptionBudget"):
        selector = manifest(kind, "service")["spec"]["selector"]
        assert selector.get("matchLabels", selector).items() <= labels.items()
    target = manifest("HorizontalPodAutoscaler", "service")["spec"]["scaleTargetRef"]
    assert manifest(target["kind"], target["name"])["apiVersion"] == target["apiVersion"]


def test_admin_calls_and_the_redis_are_not_open_to_the_cluster() -> None:
    rules = manifest("NetworkPolicy", "service")["spec"]["ingress"]
    (admin,) = (rule for rule in rules if {"port": 8001} in rule["ports"])
    assert admin["from"]
    assert {"port": 8000} not in admin["ports"]
    (redis,) = manifest("NetworkPolicy", "redis")["spec"]["ingress"]
    assert redis["from"]


def test_the_ingress_takes_bodies_of_the_sizes_that_the_service_takes() -> None:
    size = "nginx.ingress.kubernetes.io/proxy-body-size"
    sizes = {
        path["path"]: int(one["metadata"]["annotations"][size])
        for one in MANIFESTS
        if one["kind"] == "Ingress"
        for path in one["spec"]["rules"][0]["http"]["paths"]
    }
    assert sizes == {"/v1": Settings().body_limit, "/v1/items": BODY_LIMITS["bulk"]}


@pytest.mark.parametrize("name", ["alerts.yml", "dashboard.json"])
def test_expressions_ask_for_metrics_that_exist(name: str) -> None:
    content = yaml.safe_load((ROOT / "deploy" / "observing" / name).read_text("utf-8"))  # JSON is YAML
    parts = content["groups"][0]["rules"] if name == "alerts.yml" else content["panels"]
    targets = [target for part in parts for target in part.get("targets", [part])]
    asked = {metric for target in targets for metric in re.findall(r"turret_\w+", target["expr"])}
    known = {
        metric
        for family in exported()
        for metric in (family, *(f"{family}_{part}" for part in ("bucket", "sum", "count")))
    }
    assert asked
    assert asked <= known
