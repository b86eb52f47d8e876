import pytest

from turret.service.auth.access import needed_scope


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("POST", "/v1/recommend", "read"),
        ("POST", "/v1/recommend/batch", "read"),
        ("GET", "/v1/items/7/similar", "read"),
        ("GET", "/v1/items/7", "read"),
        ("GET", "/v1/version", "read"),
        ("GET", "/metrics", "read"),
        ("POST", "/v1/events", "write"),
        ("GET", "/v1/users/7", "write"),
        ("DELETE", "/v1/users/7", "write"),
        ("PUT", "/v1/items/7", "write"),
        ("DELETE", "/v1/items/7", "write"),
        ("POST", "/admin/activate", "admin"),
        ("GET", "/admin", "admin"),
        ("GET", "/livez", None),
        ("GET", "/readyz", None),
        ("GET", "/docs", None),
        ("POST", "/v1/something/new", "write"),
        ("GET", "/v1/something/new", "read"),
    ],
)
def test_every_call_needs_its_scope(method: str, path: str, scope: str | None) -> None:
    """A path that is added later without a rule is closed."""
    assert needed_scope(method, path) == scope


@pytest.mark.parametrize("path", ["/livez/", "//livez", "/v1/../livez", "/LIVEZ", "/docs/x"])
def test_what_only_looks_like_an_open_call_is_not_open(path: str) -> None:
    assert needed_scope("GET", path) == "read"
