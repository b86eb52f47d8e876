"""Print the software bill of materials of the environment that runs it, as CycloneDX 1.5 in JSON.

`deploy/sbom` runs it in an image: its Python packages, and those of Debian. `deploy.release` runs it in the
environment of a wheel.
"""

import json
import re
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from importlib.metadata import distributions
from typing import Any


def main(name: str, digest: str, kind: str = "container") -> int:
    """Print the document of an image, or with `kind` "library" of a wheel; returns the exit status."""
    system = debian_packages() if kind == "container" else []
    components = sorted([*python_packages(), *system], key=lambda one: one["purl"])
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": kind, "bom-ref": "subject", "name": name, "version": digest},
        },
        "components": components,
    }
    print(json.dumps(document, indent=1))
    return 0


def python_packages() -> list[dict[str, Any]]:
    """The installed Python distributions."""
    found: dict[str, dict[str, Any]] = {}
    for one in distributions():
        name, version = one.metadata["Name"], one.version
        purl = f"pkg:pypi/{re.sub('[-_.]+', '-', name).lower()}@{version}"
        found.setdefault(purl, component := _component(name, version, purl))
        if expression := one.metadata["License-Expression"]:
            component["licenses"] = [{"expression": expression}]
    return list(found.values())


def _component(name: str, version: str, purl: str) -> dict[str, Any]:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def debian_packages() -> list[dict[str, Any]]:
    """The installed packages of Debian; none on another system."""
    command = ["dpkg-query", "--show", "--showformat", "${Package}\t${Version}\t${Architecture}\n"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    found = []
    for line in listed.splitlines():
        name, version, architecture = line.split("\t")
        purl = f"pkg:deb/debian/{name}@{version.replace('+', '%2B')}?arch={architecture}"
        found.append(_component(name, version, purl))
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
