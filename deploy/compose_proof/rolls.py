"""A code roll between two image tags and back."""

import subprocess

from deploy.compose_proof.project import CommandError, Project
from deploy.compose_proof.proof import REPLICAS, Proof, in_words, require


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
