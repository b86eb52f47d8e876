"""What the document of the calls says is so, as far as hundreds of requests made up from it can tell."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.described_shop import publish_described
from tests.support.service_process import Process
from turret.service.keys.key_file import add_key
from turret.service.keys.keys import new_key, record

ROOT = Path(__file__).parents[2]
SCOPES = ("read", "write", "admin")


@dataclass(frozen=True)
class Service:
    url: str
    admin_url: str
    key: str
    process: Process


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """The real process, closed to those without a key, with its admin calls on a port of their own."""
    publish_described(tmp_path / "bundles", "v2", seed=1)
    publish_described(tmp_path / "bundles", "v1")
    key = new_key("tests")
    add_key(tmp_path / "keys.json", record("tests", key, SCOPES))
    process = Process(tmp_path / "bundles", admin_port=0)
    try:
        yield Service(process.urls[0], process.urls[-1], key, process)
    finally:
        process.close()


def explore(service: Service, document: str | Path, folder: Path, *more: str) -> tuple[int, str]:
    """Run schemathesis as anybody would; gives its status and what it printed."""
    command = [
        sys.executable,
        "-m",
        "schemathesis.cli",
        "run",
        str(document),
        "--checks",
        "all",
        "--no-color",
    ]
    header = ["--header", f"Authorization: Bearer {service.key}"]
    finished = subprocess.run(
        [*command, *header, "--seed", "1", "--max-examples", "10", "--no-color", *more],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SCHEMATHESIS_HOOKS": "tests.end_to_end.unsayable",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return finished.returncode, finished.stdout + finished.stderr


def with_our_configuration(folder: Path) -> Path:
    (folder / "schemathesis.toml").write_bytes((ROOT / "schemathesis.toml").read_bytes())
    return folder


@pytest.mark.nightly
def test_every_call_is_as_described(service: Service, tmp_path: Path) -> None:
    """Every check, in every phase: values at and beyond their bounds, made-up ones, calls in a row."""
    status, printed = explore(service, f"{service.url}/openapi.json", with_our_configuration(tmp_path))
    assert status == 0, printed[-6000:]
    (generated,) = re.findall(r"(\d+) generated", printed)
    assert int(generated) > 500
    assert service.process.client.get("/readyz").json()["status"] == "ready"
    assert service.process.stop()[0] == 0


@pytest.mark.nightly
def test_the_calls_of_the_admin_port_are_as_described(service: Service, tmp_path: Path) -> None:
    document = f"{service.admin_url}/openapi.json"
    status, printed = explore(service, document, with_our_configuration(tmp_path))
    assert status == 0, printed[-6000:]
    assert "/admin" in json.dumps(service.process.client.get(document).json()["paths"])


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("bounds", "phase", "found"),
    [
        ({"minimum": 1001, "maximum": 2000}, "fuzzing", "k was refused, and fits"),
        ({"minimum": 5}, "coverage", "ST201"),
    ],
)
def test_a_document_that_says_what_is_not_so_is_found(
    service: Service, tmp_path: Path, bounds: dict[str, int], phase: str, found: str
) -> None:
    """The same checks with other bounds of k; else they could be checks of nothing."""
    document = service.process.client.get("/openapi.json").json()
    document["components"]["schemas"]["RecommendRequest"]["properties"]["k"] |= bounds
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    folder = with_our_configuration(tmp_path)
    one_call = ("--url", service.url, "--include-path", "/v1/recommend", "--phases", phase)
    status, printed = explore(service, path, folder, *one_call)
    assert status == 1
    assert found in printed, printed[-3000:]
