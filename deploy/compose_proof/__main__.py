"""Bring up the production profile from nothing, and run the checks with some numbers, by default all.

`python -m deploy.compose_proof [NUMBER ...]`; `make test-compose` runs all.
"""

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from deploy.compose_proof.checks import (
    REPLICAS,
    Proof,
    check_absent_replica,
    check_backup,
    check_index_kind_and_rollback,
    check_kills,
    check_new_version,
    check_refusals,
    check_retraining,
    check_rolls,
    check_watching,
    last_json,
)
from deploy.compose_proof.load import RATE, Load
from deploy.compose_proof.project import ROOT, Project

MOST_MB = 350
MOST_REBUILD_SECONDS = 60
BASE = "python:3.11-slim-bookworm"
PARTS = ("Dockerfile", ".dockerignore", "pyproject.toml", "LICENSE", "README.md", "turret", "deploy/locks")
CODE = ("data", "service", "tower", "training")
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
        mb_over_base, rebuild_seconds = build_images(project)
        print(
            f"images: serve is {mb_over_base:.1f} MB above its base (at most {MOST_MB}); a change of code "
            f"alone is built in {rebuild_seconds:.0f} s (at most {MOST_REBUILD_SECONDS})",
            flush=True,
        )
        fits = mb_over_base <= MOST_MB and rebuild_seconds <= MOST_REBUILD_SECONDS
        results["images"] = "passed" if fits else "failed"
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
        "image_mb_over_base": round(mb_over_base, 1),
        "seconds": round(time.monotonic() - begin),
    }
    print(json.dumps(summary))
    return int(failed > 0 or set(results.values()) != {"passed"})


def build_images(project: Project) -> tuple[float, float]:
    """Build turret:proof, turret:proof-train and, from changed code, turret:proof-next.

    Returns the megabytes of `serve` above its base, and the seconds of a build after a change of code.
    """
    revision = project.command("git", "rev-parse", "--short", "HEAD", accept=True).strip() or "unknown"
    arguments = ["--build-arg", "VERSION=proof", "--build-arg", f"REVISION={revision}"]
    for target, tag in (("serve", "proof"), ("train", "proof-train")):
        project.command(
            "docker", "build", "--target", target, "-t", f"turret:{tag}", *arguments, ".", seconds=590
        )
    changed = project.folder / "changed"
    _copy(changed)
    with (changed / "service" / "__init__.py").open("a", encoding="utf-8") as file:
        file.write("\n# changed\n")
    begin = time.monotonic()
    project.command(
        "docker", "build", "--target", "serve", "-t", "turret:proof-next", *arguments, str(changed)
    )
    seconds = time.monotonic() - begin
    return (_size(project, "turret:proof") - _size(project, BASE)) / 1e6, seconds


def _copy(target: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    for name in (*PARTS, *CODE):
        source, place = ROOT / name, target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, place, symlinks=True, ignore=ignored)
        else:
            shutil.copy2(source, place)


def _size(project: Project, image: str) -> int:
    found: int = json.loads(project.command("docker", "image", "inspect", image))[0]["Size"]
    return found


def bring_up(project: Project) -> Proof:
    """Start the profile without volumes, train a first version, load its histories, and begin to send."""
    project.limit_bundles()
    project.compose("up", "-d")
    project.run("trainer", "data", "synth", "var/shop", "--users", "800", "--items", "700")
    project.run("trainer", "data", "prepare", "var/shop")
    project.run("trainer", "train", "--experiment", "demo", "--set", "training.epochs=3")
    project.run("trainer", "export", "--version", "first")
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


def _say(begin: float, text: str) -> None:
    print(f"{time.monotonic() - begin:5.0f} s  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main([int(word) for word in sys.argv[1:]] or list(CHECKS)))
