"""The bill of materials of an image."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def document() -> dict[str, object]:
    command = [sys.executable, str(ROOT / "deploy" / "sbom.py"), "turret:serve", "sha256:0"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, object] = json.loads(run.stdout)
    return found


def test_it_names_every_package_with_its_version(document: dict[str, object]) -> None:
    components = document["components"]
    assert isinstance(components, list)
    by_name = {one["name"].lower(): one for one in components if one["purl"].startswith("pkg:pypi/")}
    assert by_name["numpy"]["version"] == version("numpy")
    assert by_name["pydantic"]["purl"] == f"pkg:pypi/pydantic@{version('pydantic')}"
    references = [one["bom-ref"] for one in components]
    assert len(references) == len(set(references))


def test_it_follows_the_schema_of_cyclonedx(document: dict[str, object]) -> None:
    """The schema that the library of CycloneDX ships."""
    validation = pytest.importorskip("cyclonedx.validation.json")
    schema = pytest.importorskip("cyclonedx.schema")
    validator = validation.JsonStrictValidator(schema.SchemaVersion.V1_5)
    try:
        fault = validator.validate_str(json.dumps(document))
    except Exception as missing:
        if type(missing).__name__ != "MissingOptionalDependencyException":
            raise
        pytest.skip("jsonschema is not installed")
    assert fault is None
