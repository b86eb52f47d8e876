"""Checks of losses: killed containers, then destroyed volumes and their backup."""

import shutil
import time
from typing import Any

from deploy.compose_proof.project import wait
from deploy.compose_proof.proof import REPLICAS, Proof, in_words, require


def check_kills(proof: Proof) -> str:
    """No request fails for a replica; without the Redis answers are marked; no acknowledged event is lost."""
    project, load = proof.project, proof.load
    replica = project.containers()[0]
    project.command("docker", "kill", replica)
    time.sleep(5)
    project.command("docker", "start", replica)
    project.wait_until_ready(REPLICAS)

    (redis,) = project.containers("redis")
    marked = load.marked
    with load.marks_accepted():
        project.command("docker", "kill", redis)
        time.sleep(6)
        project.command("docker", "start", redis)
        wait(lambda: _stores(proof), 60, "stored event after the Redis was back")
        # Every worker tries its open circuits again after two seconds.
        time.sleep(5)
    require(load.marked > marked, "the Redis was killed, and no answer says so")
    count = acknowledged_are_there(proof)
    return f"{load.marked - marked} marked answers without the Redis, {count} acknowledged events are there"


def acknowledged_are_there(proof: Proof) -> int:
    """Every acknowledged event is read back; their number."""
    with proof.load.lock:
        acknowledged = {user: list(events) for user, events in proof.load.acknowledged.items()}
    for user, events in acknowledged.items():
        answer = proof.ask("GET", f"/v1/users/{user}")
        require(answer.status == 200, f"the events of {user}: {answer.status} {answer.value}")
        lost = set(events[-900:]) - {event["event_id"] for event in answer.value["events"]}
        require(not lost, f"{len(lost)} acknowledged events of {user} are lost, such as {sorted(lost)[:3]}")
    return sum(map(len, acknowledged.values()))


def _stores(proof: Proof) -> bool:
    event = {"event_id": "probe", "user_id": "prober", "item_id": "probe"}
    return proof.ask("POST", "/v1/events", {"events": [event]}).status == 200


def check_backup(proof: Proof) -> str:
    """The same answers, histories, keys and items as before; a damaged backup is refused untouched."""
    project, load = proof.project, proof.load
    withdrawn = proof.ask("POST", "/v1/recommend", {"k": 1}).value["items"][0]["id"]
    require(proof.ask("DELETE", f"/v1/items/{withdrawn}").status == 200, "an item can't be withdrawn")
    (live,) = set(project.replica_versions())
    folder = project.folder / "backup"
    with load.lock:
        acknowledged = {user: list(events) for user, events in load.acknowledged.items()}
    project.command("deploy/backup", str(folder))
    proof.serves(live, "during the backup")

    damaged = project.folder / "damaged"
    shutil.copytree(folder, damaged)
    content = bytearray((damaged / "bundles.tar").read_bytes())
    content[len(content) // 2] ^= 1
    (damaged / "bundles.tar").write_bytes(content)
    refused = in_words(project.command("deploy/restore", "--replace", str(damaged), accept=True))
    proof.serves(live, "after a damaged backup")

    with load.paused():
        before = _answers(proof, withdrawn)
        project.destroy_volumes()
        project.limit_bundles()
        project.command("deploy/restore", str(folder))
        project.wait_until_ready(REPLICAS)
        after = _answers(proof, withdrawn)
        changed = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
        require(not changed, f"{len(changed)} answers differ after the restore: {changed[:1]}")
        with load.lock:
            load.acknowledged = acknowledged
        count = acknowledged_are_there(proof)
    proof.serves(live, "after the restore")
    return f"{live}, {len(before)} answers and {count} events are as before; damaged: {refused!r}"


def _answers(proof: Proof, withdrawn: str) -> list[Any]:
    """The recommendations of users without new events, and a withdrawn item. A cursor names a moment."""
    found = []
    for user in proof.load.users[:30]:
        answer = proof.ask("POST", "/v1/recommend", {"user_id": user, "k": 10}).value
        found.append({name: answer[name] for name in ("version", "items", "degraded")})
    item = proof.ask("GET", f"/v1/items/{withdrawn}").value
    require(item.get("withdrawn"), f"{withdrawn} was withdrawn, and is not: {item}")
    return [*found, item]
