"""The calls of the service: scope, lane and name of each. A request is matched once; its route follows.

The key check, the admission, the metrics and the routing use that one match, so a path means the same
to all of them. A path matches as a whole; paths that are not listed are closed.
"""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

Scope = Literal["read", "write", "rules", "admin"]
# A full lane keeps out only requests of that lane, and probes are never kept out: see `http.admission`. Calls
# of one lane need keys of the same scopes, so that no weaker key, and no client without a key, keeps the
# operator out.
Lane = Literal["recommend", "batch", "bulk", "store", "read", "rules", "operator", "metrics", "open", "probe"]
_READING = ("GET", "HEAD", "OPTIONS")
_NO_PARAMETERS: Mapping[str, str] = {}


class Call(NamedTuple):
    """The scope that a call requires (None: public), its lane, and its name in metrics, logs and traces.

    The name is the path with parameters in braces. `parameters` are those of a request.
    """

    scope: Scope | None
    lane: Lane
    name: str
    parameters: Mapping[str, str] = _NO_PARAMETERS


def _calls(scope: Scope | None, lane: Lane, *paths: str, methods: str = "GET") -> dict[tuple[str, str], Call]:
    return {(method, path): Call(scope, lane, path) for path in paths for method in methods.split()}


_SIMILAR, _ITEM, _USER = "/v1/items/{item_id}/similar", "/v1/items/{item_id}", "/v1/users/{user_id}"
_COMPARED = "/admin/comparison"
# The calls by method and name; if two names match a path, the first is meant. A method that a path doesn't
# have needs the key of the path's first method, to be refused.
CALLS: Mapping[tuple[str, str], Call] = {
    **_calls("read", "recommend", "/v1/recommend", "/v1/search", "/v1/popular", methods="POST"),
    **_calls("read", "recommend", _SIMILAR, methods="GET POST"),
    **_calls("read", "batch", "/v1/recommend/batch", "/v1/vectors", methods="POST"),
    **_calls("read", "read", "/v1/items", "/v1/fields", "/v1/version", "/v1/versions", "/v1/activations"),
    **_calls("read", "read", "/v1/map", "/v1/map/points", "/v1/map/colours", "/v1/map/items", "/v1/rules"),
    **_calls("read", "read", _ITEM),
    **_calls("write", "bulk", "/v1/items", methods="POST"),
    **_calls("write", "store", _ITEM, methods="PUT PATCH DELETE"),
    **_calls("write", "store", "/v1/events", methods="POST"),
    **_calls("write", "store", "/v1/random-user"),  # reading data of users needs the scope write too
    **_calls("write", "store", _USER, methods="GET DELETE"),
    **_calls("rules", "rules", "/v1/rules", methods="PUT"),
    **_calls("rules", "rules", "/v1/rules/rollback", methods="POST"),
    **_calls("admin", "operator", "/admin/activate", "/admin/rollback", methods="POST"),
    **_calls("admin", "operator", "/admin/routes", methods="GET POST"),
    **_calls("admin", "operator", "/admin/outcomes"),
    **_calls("admin", "operator", _COMPARED, methods="GET POST DELETE"),
    **_calls("admin", "operator", f"{_COMPARED}/recommend", methods="POST"),
    **_calls("admin", "operator", f"{_COMPARED}/overlap"),
    **_calls("read", "metrics", "/metrics"),
    # Probes, the description of the API and the files of the page hold no data of users or items.
    **_calls(None, "probe", "/livez", "/readyz", methods="GET HEAD"),
    **_calls(None, "open", "/", "/docs", "/openapi.json", "/page/{path}", methods="GET HEAD"),
    **_calls(None, "open", "/page/settings.json"),
}
# The calls whose paths have no parameters.
EXACT: Mapping[tuple[str, str], Call] = {key: call for key, call in CALLS.items() if "{" not in key[1]}
_FIRST = {name: call for (_, name), call in reversed([*CALLS.items()])}
_PATTERNS = [
    (re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.*)", re.escape(name)), re.DOTALL).fullmatch, name)
    for name in dict.fromkeys(name for _, name in CALLS)
    if "{" in name
]


def find(method: str, path: str) -> Call:
    """Look up a call by the whole decoded path; an id in it may have any characters.

    A path that is not listed requires a scope too: admin, or else read or write by its method. Such a call is
    named `unknown`, as clients choose it.
    """
    if path in _FIRST and "{" not in path:
        return CALLS.get((method, path), _FIRST[path])
    for matched, name in _PATTERNS:
        if match := matched(path):
            return CALLS.get((method, name), _FIRST[name])._replace(parameters=match.groupdict())
    if path == "/admin" or path.startswith("/admin/"):
        return Call("admin", "operator", "unknown")
    return Call("read" if method in _READING else "write", "read", "unknown")


def has_admin_calls(address: tuple[str, int | None] | None, admin_port: int | None) -> bool:
    """Whether the socket at `address` takes admin calls: `admin_port` alone does; None: every port does."""
    return admin_port is None or (address is not None and address[1] == admin_port)
