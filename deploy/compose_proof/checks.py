"""The checks of the proof, what they share, and how one of them fails."""

import json
import random
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2

from deploy.compose_proof.load import Load
from deploy.compose_proof.project import ROOT, CommandError, Project, wait

REPLICAS = 2


class CheckError(Exception):
    """A check has failed."""


@dataclass
class Proof:
    """The project, the load that runs against it, and its API key."""

    project: Project
    load: Load
    key: str

    def ask(self, method: str, path: str, body: Any = None, container: str | None = None) -> httpx2.Response:
        """Call the service through the proxy, or one replica itself."""
        url = f"http://{self.project.address(container)}:8000" if container else self.load.url
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx2.request(method, url + path, json=body, headers=headers, timeout=15)

    def serves(self, version: str, why: str) -> None:
        """Both replicas answer with this version, and so does the load from now on."""
        found = self.project.replica_versions()
        require(found == [version] * REPLICAS, f"{why}: the replicas serve {found}, not {version}")
        seen = self.load.seen_versions(2)
        require(seen == {version}, f"{why}: answers came from {sorted(seen)}, not only {version}")


def require(condition: Any, message: str) -> None:
    """Fail the check unless the condition holds."""
    if not condition:
        raise CheckError(message)


def in_words(output: str) -> str:
    """The sentence of a refusal: its last line, which is no traceback."""
    require("Traceback" not in output, f"a traceback instead of a sentence: {output[-600:]}")
    lines = [line for line in output.strip().splitlines() if len(line) > 3]
    sentence = next((line for line in reversed(lines) if re.match(r"(turret|deploy/\w+): ", line)), "")
    require(sentence, f"no sentence says why: {output[-600:]}")
    return sentence[:300]


def last_json(output: str) -> Any:
    """The last line of an output that is JSON."""
    for line in reversed(output.strip().splitlines()):
        if line.startswith(("{", "[")):
            return json.loads(line)
    raise CheckError(f"no JSON in {output[-300:]}")


# ---- Activations

CORRUPT = "corrupt"


def check_new_version(proof: Proof) -> str:
    """The answers of both replicas change version."""
    project = proof.project
    proof.serves("first", "before the activation")
    project.run("trainer",
        "train", "--run", "var/run-2", "--experiment", "demo", "--set", "training.epochs=2", "--set",
        "training.seed=2",
    )  # fmt: skip
    project.run("trainer", "export", "var/run-2", "--version", "second")
    proof.serves("first", "after the export")
    project.activate("second")
    proof.serves("second", "after the activation")
    return "both replicas went from first to second"


def check_index_kind_and_rollback(proof: Proof) -> str:
    """Both replicas answer from the new index, and then from the previous version."""
    project = proof.project
    (before,) = set(project.replica_versions())
    project.run(
        "trainer",
        "index",
        f"var/bundles/{before}",
        "--kind",
        "ivf_pq",
        "--recall",
        "0.98",
        "--version",
        "codes",
    )
    project.activate("codes")
    proof.serves("codes", "after the activation")
    project.run("admin", "rollback", "--url", "http://service:8001")
    proof.serves(before, "after the rollback")
    return f"{before}, codes (ivf_pq), {before}"


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
    wait(lambda: _ask_replica(proof, replica, first), 60, "answer of the replica that returned")
    time.sleep(1)
    _ask_replica(proof, replica, first)
    require(set(first) == {new}, f"the replica that returned answered with {first}, not {new}")
    project.wait_until_ready(REPLICAS)
    proof.serves(new, "after the return")
    return f"its first answer came from {new}"


def _ask_replica(proof: Proof, replica: str, versions: list[str]) -> bool:
    try:
        answer = proof.ask("POST", "/v1/recommend", {"k": 3}, container=replica)
    except httpx2.HTTPError:
        return False
    if answer.status_code != 200:
        return False
    versions.append(answer.json()["version"])
    return True


def check_refusals(proof: Proof) -> str:
    """Each is refused in words, and the old version serves on."""
    (live,) = set(proof.project.replica_versions())
    full = _full_disk(proof, live)
    make_corrupt(proof)
    corrupt = in_words(proof.project.activate(CORRUPT, accept=True))
    require("checksum" in corrupt or "SHA" in corrupt, f"a corrupt bundle is refused so: {corrupt}")
    proof.serves(live, "after a corrupt bundle")
    at_once = _two_at_once(proof)
    return f"full: {full!r}; corrupt: {corrupt!r}; at once: {at_once}"


def make_corrupt(proof: Proof) -> None:
    """Export a version, and change a byte of its vectors."""
    target = proof.project.bundles / CORRUPT
    if target.exists():
        return
    proof.project.run("trainer", "export", "var/run", "--version", CORRUPT)
    path = target / "item_vectors.npy"
    path.chmod(0o644)
    content = bytearray(path.read_bytes())
    content[-100] ^= 0x40
    path.write_bytes(content)


def _full_disk(proof: Proof, live: str) -> str:
    filler = proof.project.bundles / ".filler"
    _fill(filler)
    try:
        refused = in_words(
            proof.project.run("trainer", "export", "var/run", "--version", "full", accept=True)
        )
        require(not (proof.project.bundles / "full").exists(), "a version was published on a full disk")
        proof.serves(live, "on a full disk")
    finally:
        filler.unlink()
    return refused


def _fill(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 65536):
                pass
        except OSError:
            return


def _two_at_once(proof: Proof) -> str:
    with ThreadPoolExecutor(2) as pool:
        outputs = list(pool.map(lambda name: proof.project.activate(name, accept=True), ["graph", "second"]))
    refused = [in_words(output) for output in outputs if "Traceback" in output or "answered" in output]
    versions = set(proof.project.replica_versions())
    require(
        len(versions) == 1 and versions <= {"graph", "second"},
        f"two activations at once: the replicas serve {versions}; {outputs}",
    )
    live = versions.pop()
    proof.serves(live, "after two activations at once")
    return f"{2 - len(refused)} done in turn, {len(refused)} refused, {live} is live"


# ---- Losses: killed containers, destroyed volumes and their backup


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
        require(answer.status_code == 200, f"the events of {user}: {answer.status_code} {answer.json()}")
        lost = set(events[-900:]) - {event["event_id"] for event in answer.json()["events"]}
        require(not lost, f"{len(lost)} acknowledged events of {user} are lost, such as {sorted(lost)[:3]}")
    return sum(map(len, acknowledged.values()))


def _stores(proof: Proof) -> bool:
    event = {"event_id": "probe", "user_id": "prober", "item_id": "probe"}
    return proof.ask("POST", "/v1/events", {"events": [event]}).status_code == 200


def check_backup(proof: Proof) -> str:
    """The same answers, histories, keys and items as before; a damaged backup is refused untouched."""
    project, load = proof.project, proof.load
    withdrawn = proof.ask("POST", "/v1/recommend", {"k": 1}).json()["items"][0]["id"]
    require(proof.ask("DELETE", f"/v1/items/{withdrawn}").status_code == 200, "an item can't be withdrawn")
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
        answer = proof.ask("POST", "/v1/recommend", {"user_id": user, "k": 10}).json()
        found.append({name: answer[name] for name in ("version", "items", "degraded")})
    item = proof.ask("GET", f"/v1/items/{withdrawn}").json()
    require(item.get("withdrawn"), f"{withdrawn} was withdrawn, and is not: {item}")
    return [*found, item]


# ---- Code rolls between two image tags


def check_rolls(proof: Proof) -> str:
    """All replicas change their image twice; an unknown tag and a broken image are refused in words."""
    project = proof.project
    before = len(proof.load.failures)
    project.command("deploy/roll", "proof-next", seconds=300)
    require(_tags(project) == ["turret:proof-next"] * REPLICAS, f"after the roll: {_tags(project)}")
    unknown = in_words(project.command("deploy/roll", "no-such", accept=True))
    broken = _broken(project)
    require(_tags(project) == ["turret:proof-next"] * REPLICAS, f"after a broken image: {_tags(project)}")
    project.command("deploy/roll", "proof", seconds=300)
    require(_tags(project) == ["turret:proof"] * REPLICAS, f"after the way back: {_tags(project)}")
    require(len(proof.load.failures) == before, "requests failed during the roll")
    return f"proof, proof-next, proof; unknown: {unknown!r}; never ready: {broken!r}"


def _tags(project: Project) -> list[str]:
    return [
        project.command("docker", "inspect", "--format", "{{.Config.Image}}", one).strip()
        for one in project.containers()
    ]


def _broken(project: Project) -> str:
    """An image whose service never starts."""
    dockerfile = "FROM turret:proof\nENV TURRET_PORT=nowhere\n"
    made = subprocess.run(
        ["docker", "build", "-q", "-t", "turret:proof-broken", "-"],
        input=dockerfile,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise CommandError(made.stderr)
    project.environment["ROLL_SECONDS"] = "30"
    try:
        return in_words(project.command("deploy/roll", "proof-broken", accept=True))
    finally:
        del project.environment["ROLL_SECONDS"]
        project.command("docker", "rmi", "turret:proof-broken", accept=True)


# ---- Retraining

FANS = 300
_TRAINING = ["--mode", "anew", "--experiment", "demo", "--set", "training.epochs=4"]


def check_retraining(proof: Proof) -> str:
    """The next version learns two rare items that users take in turn; a worse version is refused."""
    first, second = _rare_pair(proof)
    before = _rank(proof, first, second)
    _send_fans(proof, "fan", first, second)
    (old,) = set(proof.project.replica_versions())
    told = proof.project.run("retrain", *_TRAINING, "--margin", "0.5")
    (new,) = set(proof.project.replica_versions())
    require(new != old, f"the retrained version isn't live: {told[-500:]}")
    proof.serves(new, "after the retraining")
    after = _rank(proof, first, second)
    require(after < before, f"{second} after {first} was at {before} and is at {after} now")

    _send_fans(proof, "admirer", first, second)
    bad = ["--set", "training.learning_rate=1e-7", "--set", "training.epochs=1"]
    refused = in_words(proof.project.run("retrain", *_TRAINING[:4], *bad, accept=True))
    proof.serves(new, "after a worse model")
    records = last_json(_compact(proof.project.run("retrain", "--history", "--json")))
    decisions = [record["decision"] for record in records]
    require(decisions[0] == "activated", f"the record says {decisions}")
    require(decisions[-1] == "refused", f"the record says {decisions}: {refused}")
    ranks = f"{second} after {first} went from rank {before} to {after}"
    return f"{ranks}; record: {decisions}; refused: {refused!r}"


def _compact(output: str) -> str:
    """JSON of several lines as one."""
    return " ".join(output[output.index("[") : output.rindex("]") + 1].split())


def _rare_pair(proof: Proof) -> tuple[Any, Any]:
    """Two items that nobody is recommended."""
    top = [
        item["id"]
        for user in proof.load.users[:40]
        for item in proof.ask("POST", "/v1/recommend", {"user_id": user, "k": 20}).json()["items"]
    ]
    rare = [item for item in proof.load.items if item not in top]
    require(len(rare) > 1, "every item is recommended to somebody")
    return rare[0], rare[-1]


def _rank(proof: Proof, history: Any, item: Any) -> int:
    """The position of `item` in the answer to a history of one item, from 1; 101 if it is not in it."""
    body = {"history": [history], "k": 100}
    found = [one["id"] for one in proof.ask("POST", "/v1/recommend", body).json()["items"]]
    return found.index(item) + 1 if item in found else 101


def _send_fans(proof: Proof, name: str, first: Any, second: Any) -> None:
    """Events of new users in the last seconds, half of whom take both items last, the others first."""
    draw = random.Random(name)
    begin = time.time() - 5
    for number in range(FANS):
        others = draw.sample([item for item in proof.load.items if item not in (first, second)], 3)
        taken = [*others, first, second] if number % 2 else [first, second, *others]
        events = [
            {
                "event_id": f"{name}-{number}-{position}",
                "user_id": f"{name}-{number}",
                "item_id": item,
                "time": datetime.fromtimestamp(begin + number / 100 + position / 1000, UTC).isoformat(),
            }
            for position, item in enumerate(taken)
        ]
        answer = proof.ask("POST", "/v1/events", {"events": events})
        require(answer.status_code == 200, f"events are refused: {answer.json()}")


# ---- Prometheus, its alerts and the dashboard

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
        return proof.project.get(container, 9090, path)["data"]
    except httpx2.HTTPError:
        # It is still starting.
        return {"activeTargets": [], "alerts": [], "groups": [{"rules": []}], "result": []}


def _admin(proof: Proof, path: str, body: Any) -> None:
    script = (
        "import json, sys, urllib.request as r; key = open('var/admin.key').read().strip(); "
        f"q = r.Request('http://service:8001{path}', {json.dumps(body).encode()!r}, "
        "{'Authorization': 'Bearer ' + key, 'Content-Type': 'application/json'}); print(r.urlopen(q).read())"
    )
    proof.project.compose("run", "--rm", "-T", "--entrypoint", "python", "admin", "-c", script)
