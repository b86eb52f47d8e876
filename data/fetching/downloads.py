"""Bounded downloads of files by https, such as a nightly feed of a catalog."""

import http.client
import ipaddress
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPMessage
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import SplitResult, urlsplit

from turret.data.errors import FetchError
from turret.data.progress import progress

NETWORK = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ValueError)
"""The errors of a download that a user may mend."""
TIMEOUT = 30.0  # seconds without a byte
CHUNK = 1 << 20
MOST_BYTES = 8 << 30
_LOCAL = "name a copy of the file on this machine"
MOST_SECONDS = 3600.0


def is_web(url: str) -> bool:
    """Tell whether a URL is one of the web, and of no object store."""
    return url.partition("://")[0].lower() in ("http", "https")


def file_name(url: str) -> str:
    """Return the name of the file at a URL, by which its form is known. Raises FetchError for no address."""
    return PurePosixPath(_parts(url).path).name or "file"


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise FetchError(f"{url} is no address of the web ({error}); check it") from None


def download(url: str, path: Path) -> None:
    """Copy the content at `url` to the new file `path`.

    Raises FetchError for an address that is not encrypted (but for one of this machine), also after being
    sent on, for a server that refuses, does not answer or breaks off, for more than MOST_BYTES, and for a
    download that takes longer than MOST_SECONDS.
    """
    _refuse_plain(url)
    opener, begun, count = urllib.request.build_opener(_Encrypted()), time.monotonic(), 0
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "turret"})
        with opener.open(request, timeout=TIMEOUT) as response, path.open("wb") as file:
            total = _length(response.headers)
            with progress(f"downloading {path.name}", total=total) as advance:
                while chunk := response.read1(CHUNK):  # which waits for no whole chunk
                    count += len(chunk)
                    if count > MOST_BYTES:
                        raise FetchError(f"{url} has more than {MOST_BYTES:,} bytes; {_LOCAL}")
                    if time.monotonic() - begun > MOST_SECONDS:
                        raise FetchError(f"{url} takes longer than {MOST_SECONDS:,.0f} seconds; {_LOCAL}")
                    file.write(chunk)
                    advance(len(chunk))
    except NETWORK as error:
        raise FetchError(
            f"{url} can't be fetched ({reason_of(error)}); check the address, the network and the proxy "
            f"(https_proxy), or {_LOCAL}"
        ) from None
    if total is not None and count != total:
        raise FetchError(f"{url} broke off after {count:,} of {total:,} bytes; run the command again")


def reason_of(error: Exception) -> str:
    """Return the reason of an error of NETWORK; the text of a ValueError may have a part of a password."""
    if isinstance(error, urllib.error.HTTPError):
        error.close()
    return type(error).__name__ if isinstance(error, ValueError) else " ".join(str(error).split())


def _length(headers: Mapping[str, str]) -> int | None:
    text = headers.get("Content-Length", "")
    return int(text) if text.isascii() and text.isdigit() else None


def _refuse_plain(url: str) -> None:
    """Raise FetchError for an address whose content others could change on the way."""
    parts = _parts(url)
    if parts.username is not None:
        raise FetchError(f"{url} has a user and a password, which are not sent; give it a token, or {_LOCAL}")
    if parts.scheme.lower() == "https" or (parts.scheme.lower() == "http" and _is_here(parts.hostname or "")):
        return
    raise FetchError(f"{url} is not encrypted; use https://, or http:// of this machine")


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Encrypted(urllib.request.HTTPRedirectHandler):
    """Follows redirects to addresses that `_refuse_plain` takes."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Return the request to the new address."""
        _refuse_plain(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)
