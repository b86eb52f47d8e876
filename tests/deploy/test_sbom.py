"""The bill of materials of an image."""

import json
import subprocess
from importlib.metadata import version

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from deploy import sbom

DEBIAN = "libc6\t2.36-9+deb12u9\tamd64\n"


def test_it_names_every_package_with_its_version_and_follows_the_schema_of_cyclonedx(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = subprocess.CompletedProcess([], 0, DEBIAN)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: listed)
    assert sbom.main("turret:serve", "sha256:0") == 0
    written = capsys.readouterr().out
    components = json.loads(written)["components"]
    by_name = {one["name"].lower(): one for one in components}
    assert by_name["numpy"]["version"] == version("numpy")
    assert by_name["pydantic"]["purl"] == f"pkg:pypi/pydantic@{version('pydantic')}"
    assert by_name["libc6"]["purl"] == "pkg:deb/debian/libc6@2.36-9%2Bdeb12u9?arch=amd64"
    references = [one["bom-ref"] for one in components]
    assert len(references) == len(set(references))
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(written) is None
