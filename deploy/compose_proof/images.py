"""The images of the proof: built, measured against their base, and built again after a change of code."""

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from deploy.compose_proof.project import ROOT, Project

MOST_MB = 350
MOST_REBUILD_SECONDS = 60
BASE = "python:3.11-slim-bookworm"
PARTS = ("Dockerfile", ".dockerignore", "pyproject.toml", "LICENSE", "README.md", "turret", "deploy/locks")
CODE = ("data", "service", "tower", "training")


@dataclass(frozen=True)
class Images:
    """Megabytes of `serve` above its base, and the seconds of a build after a change of code."""

    mb_over_base: float
    rebuild_seconds: float


def build(project: Project) -> Images:
    """Build turret:proof, turret:proof-train and, from changed code, turret:proof-next."""
    arguments = ["--build-arg", "VERSION=proof", "--build-arg", f"REVISION={_revision(project)}"]
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
    return Images((_size(project, "turret:proof") - _size(project, BASE)) / 1e6, seconds)


def _copy(target: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    for name in (*PARTS, *CODE):
        source, place = ROOT / name, target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, place, symlinks=True, ignore=ignored)
        else:
            shutil.copy2(source, place)


def _revision(project: Project) -> str:
    return project.command("git", "rev-parse", "--short", "HEAD", accept=True).strip() or "unknown"


def _size(project: Project, image: str) -> int:
    found: int = json.loads(project.command("docker", "image", "inspect", image))[0]["Size"]
    return found
