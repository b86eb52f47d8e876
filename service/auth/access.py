"""The scope that each call requires."""

from turret.service.keys.keys import Scope

READING = ("GET", "HEAD", "OPTIONS")
# Without data of users or items: probes, the description of the API, and the files of the page.
_OPEN = frozenset({"/livez", "/readyz", "/docs", "/openapi.json", "/"})
_PAGE = "/page/"
_PERSONAL = ("/v1/users", "/v1/random-user")
_READ = frozenset({"/v1/recommend", "/v1/recommend/batch", "/v1/version", "/v1/versions"})


def needed_scope(method: str, path: str) -> Scope | None:
    """Return the scope that a call requires, None for a public call.

    Paths not named here require a scope too, so that new calls are closed by default: admin below /admin,
    write for changes and for stored user data, else read.
    """
    if path in _READ:
        return "read"
    if path in _OPEN or path.startswith(_PAGE):
        return None
    if path == "/admin" or path.startswith("/admin/"):
        return "admin"
    if path.startswith(_PERSONAL):  # reading needs the scope write too
        return "write"
    return "read" if method in READING else "write"
