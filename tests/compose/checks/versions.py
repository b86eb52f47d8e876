"""Check 1: train, export, activate."""

from tests.compose.proof import Proof


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
