"""The calls of the service: the scope, the lane and the name of each, from its method and path alone."""

from typing import Literal, NamedTuple

Scope = Literal["read", "write", "rules", "admin"]
# Requests of one lane keep each other out only, and probes nobody: see `http.admission`.
Lane = Literal["recommend", "batch", "bulk", "store", "read", "operator", "open", "probe"]
_READING = ("GET", "HEAD", "OPTIONS")


class Call(NamedTuple):
    """The scope that a call requires (None: public), its lane, and its name in metrics, logs and traces."""

    scope: Scope | None
    lane: Lane
    name: str


def _calls(scope: Scope | None, lane: Lane, *paths: str) -> dict[str, Call]:
    return {path: Call(scope, lane, path) for path in paths}


_BY_PATH = {
    **_calls("read", "recommend", "/v1/recommend", "/v1/search"),
    **_calls("read", "batch", "/v1/recommend/batch"),
    **_calls("write", "store", "/v1/events", "/v1/random-user"),
    **_calls("read", "read", "/v1/version", "/v1/versions", "/v1/activations", "/v1/items", "/v1/fields"),
    **_calls("read", "read", "/v1/map", "/v1/map/points", "/v1/map/colours", "/v1/map/items"),
    **_calls("read", "operator", "/metrics"),
    **_calls("admin", "operator", "/admin/activate", "/admin/rollback", "/admin/routes"),
    **_calls(
        "admin", "operator", "/admin/comparison", "/admin/comparison/recommend", "/admin/comparison/overlap"
    ),
    **_calls("rules", "operator", "/v1/rules", "/v1/rules/rollback"),
    # Without data of users or items: probes, the description of the API, and the files of the page.
    **_calls(None, "probe", "/livez", "/readyz"),
    **_calls(None, "open", "/", "/docs", "/openapi.json", "/page/settings.json"),
}


def call_of(method: str, path: str) -> Call:
    """Look up a call.

    A path that is not listed requires a scope too, so that new calls are closed by default: read or write by
    its method. Its name is `unknown`, as clients choose it.
    """
    is_read = method in _READING
    if path == "/v1/items" and not is_read:
        return Call("write", "bulk", path)
    if path == "/v1/rules" and is_read:
        return Call("read", "read", path)
    call = _BY_PATH.get(path)
    if call is not None:
        return call
    if path.startswith("/v1/items/"):
        if path.endswith("/similar") and (is_read or method == "POST"):
            return Call("read", "recommend", "/v1/items/{item_id}/similar")
        name = "/v1/items/{item_id}"
        return Call("read", "read", name) if is_read else Call("write", "store", name)
    if path.startswith("/v1/users/"):  # reading needs the scope write too
        return Call("write", "store", "/v1/users/{user_id}")
    if path.startswith("/page/"):
        return Call(None, "open", "/page/{path}")
    if path == "/admin" or path.startswith("/admin/"):
        return Call("admin", "operator", "unknown")
    return Call("read" if is_read else "write", "read", "unknown")


def has_admin_calls(address: tuple[str, int | None] | None, admin_port: int | None) -> bool:
    """Whether the socket at `address` takes admin calls: that of `admin_port` alone; None: each."""
    return admin_port is None or (address is not None and address[1] == admin_port)
