"""Check 2: another kind of index goes live, then a rollback."""

from tests.compose.proof import Proof


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
