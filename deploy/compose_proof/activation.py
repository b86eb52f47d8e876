"""Checks of activations: a new version, another index, an absent replica, refusals."""

import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path

from deploy.compose_proof.project import wait
from deploy.compose_proof.proof import REPLICAS, Proof, in_words, require

CORRUPT = "corrupt"


def check_new_version(proof: Proof) -> str:
    """The answers of both replicas change version."""
    project = proof.project
    proof.serves("first", "before the activation")
    project.trainer(
        "train", "--run", "var/run-2", "--experiment", "demo", "--set", "training.epochs=2", "--set",
        "training.seed=2",
    )  # fmt: skip
    project.trainer("export", "var/run-2", "--version", "second")
    proof.serves("first", "after the export")
    project.activate("second")
    proof.serves("second", "after the activation")
    return "both replicas went from first to second"


def check_index_kind_and_rollback(proof: Proof) -> str:
    """Both replicas answer from the new index, and then from the previous version."""
    project = proof.project
    (before,) = set(project.replica_versions())
    project.trainer(
        "index", f"var/bundles/{before}", "--kind", "hnsw", "--recall", "0.98", "--version", "graph"
    )
    project.activate("graph")
    proof.serves("graph", "after the activation")
    project.rollback()
    proof.serves(before, "after the rollback")
    return f"{before}, graph (hnsw), {before}"


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
    except (OSError, HTTPException, ValueError):
        return False
    if answer.status != 200:
        return False
    versions.append(answer.value["version"])
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
    proof.project.trainer("export", "var/run", "--version", CORRUPT)
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
