"""Response headers for browsers: no type sniffing, no frames, and a policy of what a page may load."""

from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
    """Adds the headers to every response; /docs and the page have policies of their own.

    The page loads scripts, styles, fonts and data from its own service alone, and pictures also from the
    origins `pictures`. A browser asks for a cached file of the page again, which costs a 304: a release may
    have replaced it, and all files have to be of one release.
    """

    def __init__(self, app: ASGIApp, pictures: Sequence[str] = ()) -> None:
        self._app = app
        self._page = (
            _NO_SNIFFING,
            _NO_REFERRER,
            (b"cache-control", b"no-cache"),
            (b"content-security-policy", _page_policy(pictures).encode("ascii")),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add the headers to its response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        added = self._headers(scope["path"])

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _headers(self, path: str) -> tuple[tuple[bytes, bytes], ...]:
        if path == "/" or path.startswith("/page/"):
            return self._page
        return _DOCS if path == "/docs" else DATA


def _page_policy(pictures: Sequence[str]) -> str:
    images = " ".join(("img-src 'self' data:", *pictures))
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; {images}; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
