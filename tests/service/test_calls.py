"""The table of calls: the scope, lane and name of every call, and of paths that are none."""

from typing import Any

import orjson
import pytest

from turret.service.calls import call_of
from turret.service.http.routes.probes import STATIC

PATHS: dict[str, Any] = orjson.loads((STATIC / "openapi.json").read_bytes())["paths"]


def test_every_described_call_has_its_path_as_its_name() -> None:
    for path, methods in PATHS.items():
        for method in methods:
            assert call_of(method.upper(), path.replace("{", "").replace("}", "")).name == path


@pytest.mark.parametrize(
    ("method", "path", "lane"),
    [
        ("POST", "/v1/recommend", "recommend"),
        ("GET", "/v1/items/7/similar", "recommend"),
        ("POST", "/v1/items/7/similar", "recommend"),
        ("DELETE", "/v1/items/7/similar", "store"),
        ("POST", "/v1/recommend/batch", "batch"),
        ("POST", "/v1/events", "store"),
        ("GET", "/v1/users/7", "store"),
        ("PUT", "/v1/items/7", "store"),
        ("PATCH", "/v1/items/7", "store"),
        ("DELETE", "/v1/items/a/b", "store"),
        ("GET", "/v1/items/7", "read"),
        ("GET", "/v1/versions", "read"),
        ("GET", "/livez", "probe"),
        ("GET", "/readyz", "probe"),
        ("GET", "/docs", "open"),
        ("GET", "/page/app/main.js", "open"),
        ("GET", "/metrics", "operator"),
        ("POST", "/admin/activate", "operator"),
        ("POST", "/admin/nothing", "operator"),
        ("GET", "/nowhere", "read"),
    ],
)
def test_writes_reads_recommendations_and_the_operator_have_lanes_of_their_own(
    method: str, path: str, lane: str
) -> None:
    assert call_of(method, path).lane == lane


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/admin", "admin"),
        ("GET", "/admin/nothing", "admin"),
        ("GET", "/docs", None),
        ("POST", "/v1/something/new", "write"),
        ("GET", "/v1/something/new", "read"),
        ("GET", "/v1/users/u/history", "write"),
        *(("GET", path, "read") for path in ("/livez/", "//livez", "/v1/../livez", "/LIVEZ", "/docs/x")),
    ],
)
def test_a_path_without_a_rule_is_closed(method: str, path: str, scope: str | None) -> None:
    """Also one that only looks like an open one; stored data of users is not for keys that read."""
    assert call_of(method, path).scope == scope


@pytest.mark.parametrize("path", ["/nowhere", "/admin/nothing", "/v1/users", "/pages"])
def test_a_path_that_a_client_made_up_is_no_name(path: str) -> None:
    """Each name is a label of the metrics."""
    assert call_of("GET", path).name == "unknown"
