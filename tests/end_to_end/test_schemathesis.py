"""The calls are as their document describes them, as far as requests made up from it can tell."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import given, settings
from schemathesis import Case
from schemathesis.config import SchemathesisConfig
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode
from schemathesis.schemas import BaseSchema
from starlette.types import Receive, Scope, Send

from tests.end_to_end import unsayable
from tests.support.described_shop import publish_described
from tests.support.places import ROOT
from tests.support.service_app import ADMIN, settings_of
from tests.support.service_process import Process
from turret.service.http.app import create_app
from turret.service.http.routes.probes import STATIC
from turret.service.keys.keys import add_key, new_key, record

CONFIGURATION = ROOT / "schemathesis.toml"
PATHS = json.loads((STATIC / "openapi.json").read_text("utf-8"))["paths"]
CALLS = [(method.upper(), path) for path, methods in PATHS.items() for method in methods]
# Those that take something can be sent what does not fit; each body has much that can be wrong.
TAKING = [
    (method, path)
    for method, path in CALLS
    if {"parameters", "requestBody"} & set(PATHS[path][method.lower()])
]


class Described:
    """A service within the process that has no keys, and the document of its calls."""

    def __init__(self, folder: Path) -> None:
        publish_described(folder, "v2", seed=1)
        publish_described(folder, "v1")
        self._app = create_app(settings_of(folder))
        self.document = self.read()

    def read(self) -> BaseSchema:
        configuration = SchemathesisConfig.from_path(CONFIGURATION)
        document = schemathesis.openapi.from_asgi("/openapi.json", self._started, config=configuration)
        for path, methods in document.raw_schema["paths"].items():
            for call in methods.values() if not path.startswith("/admin") else ():
                call.pop("security", None)
        for schema in document.raw_schema["components"]["schemas"].values():
            if "properties" in schema:  # an answer has no field that nobody has described
                schema.setdefault("additionalProperties", False)
        return document

    async def _started(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Schemathesis would keep an application that it started until the end of the process."""
        assert scope["type"] != "lifespan"
        await self._app(scope, receive, send)


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Described:
    assert unsayable.UNSAYABLE  # the module registers a check of its own
    return Described(tmp_path_factory.mktemp("described"))


def explore(document: BaseSchema, method: str, path: str, mode: GenerationMode, examples: int) -> None:
    @settings(max_examples=examples)
    @given(document[path][method].as_strategy(generation_mode=mode))
    def answers_as_described(case: Case[Any]) -> None:
        case.call_and_validate(headers=ADMIN)

    answers_as_described()


# A few requests of each call, as making one of a batch takes a tenth of a second; nightly there are hundreds.
@pytest.mark.parametrize(("method", "path"), CALLS)
def test_what_fits_is_answered_as_described(
    described: Described, method: str, path: str, thorough: bool
) -> None:
    explore(described.document, method, path, GenerationMode.POSITIVE, 100 if thorough else 6)


@pytest.mark.parametrize(("method", "path"), TAKING)
def test_what_does_not_fit_is_refused_as_described(
    described: Described, method: str, path: str, thorough: bool
) -> None:
    explore(described.document, method, path, GenerationMode.NEGATIVE, 100 if thorough else 6)


@pytest.mark.parametrize(
    ("mode", "name", "schema", "found"),
    [
        (GenerationMode.POSITIVE, "k", {"type": "integer", "minimum": 1001}, "k was refused, and fits"),
        (GenerationMode.NEGATIVE, "exclude_seen", {"type": "string"}, "Schema-violating request accepted"),
    ],
)
def test_a_document_that_says_what_is_not_so_is_found(
    described: Described, mode: GenerationMode, name: str, schema: dict[str, Any], found: str
) -> None:
    """The same checks with another schema of one field; else they could be checks of nothing."""
    wrong = {
        "type": "object",
        "properties": {name: schema},
        "required": [name],
        "additionalProperties": False,
    }
    document = described.read()
    document.raw_schema["components"]["schemas"]["RecommendRequest"] = wrong
    with pytest.raises(FailureGroup) as failures:
        explore(document, "POST", "/v1/recommend", mode, 50)
    assert found in str(failures.value.exceptions)


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
    add_key(tmp_path / "keys.json", record("tests", key, ("read", "write", "admin")))
    process = Process(tmp_path / "bundles", admin_port=0)
    try:
        yield Service(process.urls[0], process.urls[-1], key, process)
    finally:
        process.close()


@pytest.mark.nightly
def test_calls_in_a_row_are_as_described(service: Service, tmp_path: Path) -> None:
    """Every check, in every phase: values at and beyond their bounds, made-up ones, calls in a row.

    With the page the port of the admin calls has all calls.
    """
    (tmp_path / "schemathesis.toml").write_bytes(CONFIGURATION.read_bytes())
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{service.admin_url}/openapi.json"]
    header = ["--header", f"Authorization: Bearer {service.key}"]
    hooks = {"PYTHONPATH": str(ROOT), "SCHEMATHESIS_HOOKS": "tests.end_to_end.unsayable"}
    finished = subprocess.run(
        [*command, *header, "--no-color", "--seed", "1", "--max-examples", "10"],
        cwd=tmp_path,
        env=os.environ | hooks,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout[-6000:]
    (generated,) = re.findall(r"(\d+) generated", finished.stdout)
    assert int(generated) > 500
    assert service.process.client.get("/readyz").json()["status"] == "ready"
    assert service.process.stop()[0] == 0
