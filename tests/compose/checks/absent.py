"""Check 4: a replica is down during an activation and returns."""

import time
from http.client import HTTPException

from tests.compose.project import wait
from tests.compose.proof import REPLICAS, Proof, require


def check_absent_replica(proof: Proof) -> str:
    """The replica serves the new version from its first answer on."""
    project = proof.project
    (before,) = set(project.replica_versions())
    new = "first" if before != "first" else "second"
    replica = project.containers()[0]
    project.command("docker", "stop", "--time", "40", replica)
    project.activate(new)
    seen = proof.load.seen_versions(1)
    require(seen == {new}, f"one replica is down: answers came from {sorted(seen)}, not only {new}")
    project.command("docker", "start", replica)
    first: list[str] = []
    wait(lambda: _answers(proof, replica, first), 60, "answer of the replica that returned")
    time.sleep(1)
    _answers(proof, replica, first)
    require(set(first) == {new}, f"the replica that returned answered with {first}, not {new}")
    project.wait_until_ready(REPLICAS)
    proof.serves(new, "after the return")
    return f"its first answer came from {new}"


def _answers(proof: Proof, replica: str, versions: list[str]) -> bool:
    try:
        answer = proof.ask("POST", "/v1/recommend", {"k": 3}, container=replica)
    except (OSError, HTTPException, ValueError):
        return False
    if answer.status != 200:
        return False
    versions.append(answer.value["version"])
    return True
