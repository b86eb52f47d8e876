"""Prometheus scrapes both replicas, and its rules and the dashboard's queries work."""

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from deploy.compose_proof.activation import CORRUPT, make_corrupt
from deploy.compose_proof.calls import call
from deploy.compose_proof.project import ROOT, wait
from deploy.compose_proof.proof import REPLICAS, Proof, require

ALERT = "TurretRefusesVersions"


def check_watching(proof: Proof) -> str:
    """Both replicas are scraped, every rule and query returns data, and one alert fires."""
    project = proof.project
    project.compose("--profile", "observe", "up", "-d", "prometheus")
    wait(lambda: _up(proof) == REPLICAS, 60, f"{REPLICAS} scraped replicas")
    (live,) = set(project.replica_versions())
    shadow = {"shadow": {"version": "first" if live != "first" else "second", "share": 0.5}}
    _admin(proof, "/admin/routes", shadow)
    rules = _get(proof, "/api/v1/rules")["groups"][0]["rules"]
    faulty = [rule["name"] for rule in rules if rule["health"] == "err"]
    require(rules and not faulty, f"alert rules with errors: {faulty}")
    wait(lambda: not _silent(proof), 120, f"data for {_silent(proof)}")
    make_corrupt(proof)
    end = time.monotonic() + 120
    while ALERT not in _firing(proof):
        require(time.monotonic() < end, f"{ALERT} doesn't fire")
        project.activate(CORRUPT, accept=True)
        time.sleep(10)
    _admin(proof, "/admin/routes", {"shadow": None})
    return f"{REPLICAS} replicas, {len(rules)} rules, {len(queries())} queries with data, {ALERT} fires"


def queries() -> list[str]:
    """The queries of the dashboard, with an interval in place of Grafana's variable."""
    panels = json.loads(Path(ROOT, "deploy", "observing", "dashboard.json").read_text("utf-8"))["panels"]
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    return [query.replace("$__rate_interval", "1m") for query in found]


def _silent(proof: Proof) -> list[str]:
    return [query for query in queries() if not _get(proof, f"/api/v1/query?query={quote(query)}")["result"]]


def _up(proof: Proof) -> int:
    targets = _get(proof, "/api/v1/targets?state=active")["activeTargets"]
    return sum(target["health"] == "up" for target in targets)


def _firing(proof: Proof) -> set[str]:
    alerts = _get(proof, "/api/v1/alerts")["alerts"]
    return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def _get(proof: Proof, path: str) -> Any:
    (container,) = proof.project.containers("prometheus")
    try:
        return call(proof.project.address(container), 9090, "GET", path).value["data"]
    except OSError:
        # It is still starting.
        return {"activeTargets": [], "alerts": [], "groups": [{"rules": []}], "result": []}


def _admin(proof: Proof, path: str, body: Any) -> None:
    script = (
        "import json, sys, urllib.request as r; key = open('var/admin.key').read().strip(); "
        f"q = r.Request('http://service:8001{path}', {json.dumps(body).encode()!r}, "
        "{'Authorization': 'Bearer ' + key, 'Content-Type': 'application/json'}); print(r.urlopen(q).read())"
    )
    proof.project.compose("run", "--rm", "-T", "--entrypoint", "python", "admin", "-c", script)
