"""Check 8: backup, volumes destroyed, restore."""

import shutil
from typing import Any

from tests.compose.checks.kills import acknowledged_are_there
from tests.compose.proof import REPLICAS, Proof, in_words, require


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
