"""Check 3: `docker kill` of a replica, then of the Redis, then both back."""

import time

from tests.compose.project import wait
from tests.compose.proof import REPLICAS, Proof, require


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
