"""The manifests for Kubernetes: valid, and of the shape of the production profile."""

from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.support.places import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text("utf-8"))
MANIFESTS: list[dict[str, Any]] = [
    document
    for name in KUSTOMIZATION["resources"]
    for document in yaml.safe_load_all((FOLDER / name).read_text())
]
VERSION = "1.30"


def manifest(kind: str, name: str) -> dict[str, Any]:
    (found,) = (one for one in MANIFESTS if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def pod(kind: str, name: str) -> dict[str, Any]:
    spec = manifest(kind, name)["spec"]
    found: dict[str, Any] = spec.get("jobTemplate", {}).get("spec", spec)["template"]["spec"]
    return found


def test_the_kustomization_has_every_file() -> None:
    files = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(KUSTOMIZATION["resources"]) == files


@pytest.mark.parametrize("document", MANIFESTS, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_a_manifest_follows_the_published_schema(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, VERSION, strict=True)


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
        named = {
            one["persistentVolumeClaim"]["claimName"]
            for one in pod(kind, name)["volumes"]
            if "persistentVolumeClaim" in one
        }
        assert named <= claims
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
