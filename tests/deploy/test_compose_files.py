"""Both Compose files follow the Compose specification, and the installed Compose accepts them."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
FILES = ["docker-compose.yml", "deploy/production.yml"]
PUBLISHED = ROOT / "tests" / "fixtures" / "compose"


def schema() -> Any:
    """The published schema: that of Compose 2, which refuses unknown keys."""
    library = pytest.importorskip("jsonschema_rs", reason="jsonschema_rs, of schemathesis, is not installed")
    return library.validator_for(json.loads((PUBLISHED / "compose-spec.json").read_text("utf-8")))


def test_the_schema_is_the_published_one() -> None:
    digest = hashlib.sha256((PUBLISHED / "compose-spec.json").read_bytes()).hexdigest()
    assert f"SHA-256: `{digest}`" in (PUBLISHED / "README.md").read_text("utf-8")


@pytest.mark.parametrize("name", FILES)
def test_a_file_follows_the_schema(name: str) -> None:
    document = yaml.safe_load((ROOT / name).read_text("utf-8"))
    assert [error.message for error in schema().iter_errors(document)] == []


@pytest.mark.parametrize(
    "faulty", [{"services": {"service": {"scales": 2}}}, {"services": {"service": {"ports": "8000"}}}]
)
def test_the_schema_refuses_a_fault(faulty: dict[str, object]) -> None:
    assert list(schema().iter_errors(faulty))


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed")
@pytest.mark.parametrize("name", FILES)
def test_compose_accepts_the_file(name: str) -> None:
    command = ["docker-compose", "--file", name, "config", "--quiet"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
