"""Resumable download of one file over HTTP.

urllib rather than pooch, which restarts an interrupted download from its first byte.
"""

import http.client
import re
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from turret.data.errors import FetchError
from turret.data.progress import progress

TIMEOUT = 30.0  # seconds without a byte
WAITS = (1.0, 2.0, 4.0, 8.0)  # seconds before each further attempt
_CHUNK = 1 << 20
_BUSY = {429, 500, 502, 503, 504}
_NOT_SATISFIABLE = 416


class _InterruptedError(Exception):
    """A transient failure; another attempt may succeed."""


def download(url: str, target: Path, size: int, waits: Sequence[float] = WAITS) -> None:
    """Download the `size` bytes at `url` to `target`, resuming `<target>.part` of an earlier run.

    The rest is requested with `Range` and, if the server named the version, `If-Range` (RFC 9110, 13.1.5): a
    server that ignores ranges, or whose file has changed, sends the whole file, and the download starts over.
    A lost connection is retried after each of `waits` seconds.

    Raises `FetchError` for an address that does not respond or has a file of another size, `OSError` when the
    disk can't store the file.
    """
    part = _Part(target)
    problem = ""
    for wait in (0.0, *waits):
        time.sleep(wait)
        try:
            _transfer(url, part, size)
        except _InterruptedError as error:
            problem = str(error)
        else:
            part.finish()
            return
    raise FetchError(
        f"{url}: {problem}, after {len(waits) + 1} attempts; run the same command again to resume "
        f"after {part.length():,} of {size:,} bytes"
    )


class _Part:
    """The incomplete file, and the ETag of its version."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self.path = target.with_name(target.name + ".part")
        self._version = target.with_name(target.name + ".part.version")

    def length(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def headers(self) -> dict[str, str]:
        """Return the request headers for the missing bytes."""
        if not (length := self.length()):
            return {}
        version = {"If-Range": self._version.read_text("utf-8")} if self._version.exists() else {}
        return {"Range": f"bytes={length}-"} | version

    def begin(self, response: http.client.HTTPResponse) -> None:
        """Start over with the version of `response`."""
        self.discard()
        etag = response.headers.get("ETag", "")
        # If-Range forbids weak tags, which do not promise the same bytes.
        version = etag if etag.startswith('"') else response.headers.get("Last-Modified", "")
        if version:
            self._version.write_text(version, "utf-8")

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self._version.unlink(missing_ok=True)

    def finish(self) -> None:
        self.path.replace(self._target)
        self._version.unlink(missing_ok=True)


def _transfer(url: str, part: _Part, size: int) -> None:
    if part.length() > size:
        part.discard()
    if part.length() == size:
        return
    with _open(url, part) as response:
        if not _continues(response, part.length()):
            if response.status == http.client.PARTIAL_CONTENT:
                part.discard()
                raise _InterruptedError("the server sent another range than the one requested")
            part.begin(response)
        _check_size(url, response, part, size)
        with part.path.open("ab") as file:
            _receive(url, response, file, size)


def _open(url: str, part: _Part) -> http.client.HTTPResponse:
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "turret"} | part.headers())
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        raise _refusal(url, error, part) from None
    except urllib.error.URLError as error:
        raise _unreachable(url, error.reason) from None
    except (ConnectionError, TimeoutError) as error:
        raise _InterruptedError(f"the connection was lost ({error})") from None
    except (http.client.HTTPException, ValueError) as error:  # its text may have a part of a password
        raise FetchError(
            f"{url} is not a valid address ({type(error).__name__}), or https_proxy isn't; give one like "
            "https://host/folder"
        ) from None
    return response


def _refusal(url: str, error: urllib.error.HTTPError, part: _Part) -> Exception:
    if error.code == _NOT_SATISFIABLE:
        part.discard()
    if error.code == _NOT_SATISFIABLE or error.code in _BUSY:
        return _InterruptedError(f"the server responded {error.code} {error.reason}")
    return FetchError(
        f"{url}: the server responded {error.code} {error.reason}; the file may have moved: "
        "open the address in a browser, or give a mirror with --base-url"
    )


def _unreachable(url: str, reason: object) -> Exception:
    if isinstance(reason, ConnectionResetError | ConnectionAbortedError | BrokenPipeError | TimeoutError):
        return _InterruptedError(f"the connection was lost ({reason})")
    return FetchError(
        f"{url} can't be reached ({reason}); check the network and the proxy (https_proxy), "
        "or give a mirror with --base-url"
    )


def _continues(response: http.client.HTTPResponse, length: int) -> bool:
    span = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return response.status == http.client.PARTIAL_CONTENT and span is not None and int(span[1]) == length


def _check_size(url: str, response: http.client.HTTPResponse, part: _Part, size: int) -> None:
    announced = response.headers.get("Content-Length", "")
    if announced.isdigit() and part.length() + int(announced) != size:
        total = part.length() + int(announced)
        part.discard()
        raise _wrong_size(url, f"{total:,} bytes", size)


def _receive(url: str, response: http.client.HTTPResponse, file: BinaryIO, size: int) -> None:
    with progress(f"downloading {url.rsplit('/', 1)[-1]}", total=size) as advance:
        advance(file.tell())
        while chunk := _read(response):
            file.write(chunk)
            advance(len(chunk))
            if file.tell() > size:
                file.truncate(0)
                raise _wrong_size(url, f"more than {size:,} bytes", size)
    if file.tell() < size:
        raise _InterruptedError(f"the connection ended after {file.tell():,} of {size:,} bytes")


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        # read1 returns received bytes at once; read would lose them with the connection.
        return response.read1(_CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _InterruptedError(f"the connection was lost ({error})") from None


def _wrong_size(url: str, actual: str, size: int) -> FetchError:
    return FetchError(
        f"{url} has {actual} instead of {size:,}: it is another file, or has changed; "
        "give a mirror of the published file with --base-url"
    )
