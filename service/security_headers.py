"""Response headers for browsers: no type sniffing, no frames, and a policy of what a page may load."""

from collections.abc import Sequence

Headers = tuple[tuple[bytes, bytes], ...]

_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_NO_REFERRER = (b"referrer-policy", b"no-referrer")
# Only three for JSON: each header costs about half a microsecond to write.
DATA = (
    _NO_SNIFFING,
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
# The page at /docs has an inline style, and loads and runs nothing.
_DOCS = (
    _NO_SNIFFING,
    _NO_REFERRER,
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        b"frame-ancestors 'none'",
    ),
)


class SecurityHeaders:
    """The headers of every response; /docs and the page have policies of their own.

    The page loads scripts, styles, fonts and data from its own service alone, and pictures also from the
    origins `pictures`. A browser asks for a cached file of the page again, which costs a 304: a release may
    have replaced it, and all files have to be of one release.
    """

    def __init__(self, pictures: Sequence[str] = ()) -> None:
        self._page = (
            _NO_SNIFFING,
            _NO_REFERRER,
            (b"cache-control", b"no-cache"),
            (b"content-security-policy", _page_policy(pictures).encode("ascii")),
        )

    def of(self, path: str) -> Headers:
        """The headers of the response to a request of `path`."""
        if path == "/" or path.startswith("/page/"):
            return self._page
        return _DOCS if path == "/docs" else DATA


def _page_policy(pictures: Sequence[str]) -> str:
    images = " ".join(("img-src 'self' data:", *pictures))
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; {images}; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
