"""The calls are as their document describes them, as far as requests made up from it can tell."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import given, settings
from schemathesis import Case
from schemathesis.config import SchemathesisConfig
from schemathesis.generation import GenerationMode
from schemathesis.schemas import BaseSchema
from starlette.types import Receive, Scope, Send

from tests.support.item_towers import publish_described
from tests.support.places import ROOT
from tests.support.service_app import ADMIN, recommended, settings_of
from turret.service.http.app import create_app
from turret.service.http.routes.probes import STATIC

CONFIGURATION = ROOT / "schemathesis.toml"
# Rules that JSON Schema can't express: these statuses pass, by parts of the field's name.
UNSAYABLE = {
    422: {
        *("history_times", "at", "id", "point", "field", "filter", "features", "cap", "kind", "user_id"),
        *("context", "pin", "by", "half_life", "kinds", "rules", "among", "places", "within"),
    },
    413: {"fields"},
}
PATHS = json.loads((STATIC / "openapi.json").read_text("utf-8"))["paths"]
# No generator of JSON makes JSON lines.
CALLS = [
    (method.upper(), path)
    for path, methods in PATHS.items()
    for method, call in methods.items()
    if "application/x-ndjson" not in call.get("requestBody", {}).get("content", ())
]
# Those that take something can be sent what does not fit; each body has much that can be wrong.
TAKING = [
    (method, path)
    for method, path in CALLS
    if {"parameters", "requestBody"} & set(PATHS[path][method.lower()])
]


@schemathesis.check
def refused_only_for_what_schemas_can_not_say(ctx: Any, response: Any, case: Any) -> None:
    """Look at the field that a refusal of a fitting request names."""
    if case.meta and case.meta.generation.mode.is_positive and response.status_code in UNSAYABLE:
        field = response.json()["error"]["field"]
        assert UNSAYABLE[response.status_code] & {*field.split(".")}, f"{field} was refused, and fits"


class Described:
    """A service within the process that has no keys, and the document of its calls."""

    def __init__(self, folder: Path) -> None:
        publish_described(folder, "v2", seed=1)
        publish_described(folder, "v1")
        self._app = create_app(settings_of(folder))
        # Reads the items and counts the events, as the start of an application does: else /readyz depends on
        # the order of tests.
        recommended(TestClient(self._app), k=1)
        asyncio.run(self._app.state.components.popular.advance())
        configuration = SchemathesisConfig.from_path(CONFIGURATION)
        self.document = schemathesis.openapi.from_asgi("/openapi.json", self._started, config=configuration)
        for path, methods in self.document.raw_schema["paths"].items():
            for call in methods.values() if not path.startswith("/admin") else ():
                call.pop("security", None)
        for schema in self.document.raw_schema["components"]["schemas"].values():
            if "properties" in schema:  # an answer has no field that nobody has described
                schema.setdefault("additionalProperties", False)

    async def _started(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Schemathesis would keep an application that it started until the end of the process."""
        assert scope["type"] != "lifespan"
        await self._app(scope, receive, send)


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Described:
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
