"""A folder of bundles that the service may not read."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rights import BOUND, needs_root
from tests.support.service_process import HERE, START, plain_client

KEY = "a-key-of-sixteen"
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(HERE), "HOME": "/nonexistent"}

pytestmark = needs_root


@pytest.fixture
def locked(three: Path) -> Iterator[Path]:
    """The folder of bundles; its rights are given back for the clean-up."""
    yield three
    three.chmod(0o755)


@pytest.mark.fault(73)
def test_a_service_does_not_start_without_rights_to_its_folder(locked: Path) -> None:
    locked.chmod(0)
    command = [
        *BOUND,
        sys.executable,
        "-B",
        "-m",
        "turret",
        "serve",
        "--bundles",
        str(locked),
        "--wait",
        "--store",
        "memory://",
    ]
    done = subprocess.run(
        command, cwd=HERE, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "is not readable" in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.fault(73)
def test_a_folder_that_loses_its_rights_keeps_the_live_version(locked: Path) -> None:
    settings = {
        "bundles": str(locked),
        "port": 0,
        "store": "memory://",
        "admin_key": KEY,
        "admin_port": "same",
        "drain_delay": 0,
        "overlap_minimum": 0,
    }
    process = subprocess.Popen(
        [*BOUND, sys.executable, "-B", "-c", START, json.dumps(settings)],
        cwd=HERE,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split(" at ")[1].split()[0]
            with plain_client(url, 20) as client:
                locked.chmod(0)
                header = {"Authorization": f"Bearer {KEY}"}
                refused = client.post("/admin/activate", json={"version": "v2"}, headers=header)
                assert refused.status_code == 409
                message = refused.json()["error"]["message"]
                assert message == "the folder of bundles can't be opened: Permission denied"
                assert client.get("/v1/versions").status_code == 503
                assert client.post("/v1/recommend", json={"history": [101]}).json()["version"] == "v1"
                assert client.get("/readyz").json()["version"] == "v1"
                locked.chmod(0o755)
                assert (
                    client.post("/admin/activate", json={"version": "v2"}, headers=header).status_code == 200
                )
        finally:
            process.terminate()
