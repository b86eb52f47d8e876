"""Check 5: a full disk, a corrupt bundle, an activation during an activation."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.compose.proof import Proof, in_words, require

CORRUPT = "corrupt"


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
