"""Bring up the production profile from nothing, and run the checks with some numbers, by default all.

`python -m deploy.compose_proof [NUMBER ...]`; `make test-compose` runs all.
"""

import json
import shutil
import sys
import time
from collections.abc import Callable

from deploy.compose_proof import images
from deploy.compose_proof.activation import (
    check_absent_replica,
    check_index_kind_and_rollback,
    check_new_version,
    check_refusals,
)
from deploy.compose_proof.load import RATE, Load
from deploy.compose_proof.project import ROOT, Project
from deploy.compose_proof.proof import REPLICAS, Proof, last_json
from deploy.compose_proof.recovery import check_backup, check_kills
from deploy.compose_proof.retraining import check_retraining
from deploy.compose_proof.rolls import check_rolls
from deploy.compose_proof.watching import check_watching

# In the order in which they run.
CHECKS: dict[int, tuple[str, Callable[[Proof], str]]] = {
    1: ("a new version is trained, exported and activated", check_new_version),
    2: ("another kind of index, and a rollback", check_index_kind_and_rollback),
    3: ("a replica and the Redis are killed", check_kills),
    4: ("a replica is down during an activation", check_absent_replica),
    5: ("full disk, corrupt bundle, two activations at once", check_refusals),
    6: ("a code roll and back", check_rolls),
    7: ("retraining on served events, and the gate", check_retraining),
    8: ("backup, destroyed volumes, restore", check_backup),
    9: ("Prometheus, alerts and the dashboard", check_watching),
}

_USERS = """
import json
from pathlib import Path
from turret.data.prepared import PreparedData
data = PreparedData.open(Path("var/prepared"))
print(json.dumps([data.users.ids(range(200)), data.item_ids.ids(range(300))]))
"""


def main(numbers: list[int]) -> int:
    """Run the checks with these numbers, by default all; returns the exit status."""
    if not shutil.which("docker"):
        print(
            "make test-compose: docker is not installed; this needs an engine with Compose", file=sys.stderr
        )
        return 2
    begin = time.monotonic()
    project = Project()
    load: Load | None = None
    results: dict[str, str] = {}
    mb_over_base = -1.0
    try:
        # The proof starts the other profile; the engine checks this one's file alone.
        project.compose("--file", str(ROOT / "docker-compose.yml"), "config", "--quiet")
        made = images.build(project)
        mb_over_base = round(made.mb_over_base, 1)
        print(
            f"images: serve is {mb_over_base} MB above its base; "
            f"a change of code alone is built in {made.rebuild_seconds:.0f} s",
            flush=True,
        )
        results["images"] = _judge(made)
        proof = bring_up(project)
        load = proof.load
        _say(begin, f"up: {REPLICAS} replicas answer through the proxy; the load is {RATE} requests/s")
        for number in numbers:
            results[str(number)] = _run(number, proof, begin)
    except Exception as error:  # the last line is printed in any case
        print(f"the proof ends: {error}", flush=True)
        results["up"] = "failed"
    finally:
        if load:
            load.stop()
            for failure in load.failures[:20]:
                print(f"  failed: {failure}")
        project.remove()
    failed = len(load.failures) if load else 0
    summary = {
        "failed_requests": failed,
        "requests": load.sent if load else 0,
        "marked": load.marked if load else 0,
        "checks": results,
        "image_mb_over_base": mb_over_base,
        "seconds": round(time.monotonic() - begin),
    }
    print(json.dumps(summary))
    return int(failed > 0 or set(results.values()) != {"passed"})


def bring_up(project: Project) -> Proof:
    """Start the profile without volumes, train a first version, load its histories, and begin to send."""
    project.limit_bundles()
    project.compose("up", "-d")
    project.trainer("data", "synth", "var/shop", "--users", "800", "--items", "700")
    project.trainer("data", "prepare", "var/shop")
    project.trainer("train", "--experiment", "demo", "--set", "training.epochs=3")
    project.trainer("export", "--version", "first")
    project.run("history", "load", "--data", "work/prepared")
    users, items = last_json(
        project.compose("run", "--rm", "-T", "--entrypoint", "python", "trainer", "-c", _USERS)
    )
    key = _new_key(project, "shop", "read", "write")
    project.environment["TURRET_TRAINER_KEY"] = _new_key(project, "trainer", "admin")
    project.compose("--profile", "observe", "up", "-d", "prometheus")
    project.wait_until_ready(REPLICAS)
    time.sleep(2)
    load = Load(project.port, users, items, key)
    load.start()
    return Proof(project, load, key)


def _new_key(project: Project, name: str, *scopes: str) -> str:
    options = [word for scope in scopes for word in ("--scope", scope)]
    created = project.run("admin", "keys", "new", name, *options)
    return next(word for word in created.split() if word.startswith(f"turret_{name}_"))


def _run(number: int, proof: Proof, begin: float) -> str:
    title, check = CHECKS[number]
    failures = len(proof.load.failures)
    try:
        told = check(proof)
    except Exception as error:  # any error is a failure of this check, and the next ones still run
        _say(begin, f"check {number} FAILED ({title}): {type(error).__name__}: {error}")
        return "failed"
    lost = len(proof.load.failures) - failures
    if lost:
        _say(begin, f"check {number} FAILED ({title}): {lost} requests failed; {told}")
        return "failed"
    _say(begin, f"check {number} passed, 0 failed requests ({title}): {told}")
    return "passed"


def _judge(made: images.Images) -> str:
    """The outcome for the size and the build time of the images, which is also printed where it is bad."""
    if made.mb_over_base <= images.MOST_MB and made.rebuild_seconds <= images.MOST_REBUILD_SECONDS:
        return "passed"
    print(f"the images FAILED: at most {images.MOST_MB} MB and {images.MOST_REBUILD_SECONDS} s", flush=True)
    return "failed"


def _say(begin: float, text: str) -> None:
    print(f"{time.monotonic() - begin:5.0f} s  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main([int(word) for word in sys.argv[1:]] or list(CHECKS)))
