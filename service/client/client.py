"""HTTP client of the command line."""

import json
import re
import time
from http.client import HTTPException, InvalidURL
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

from turret.data.errors import without_credentials
from turret.service.errors import AnswerError, ServiceError

TIMEOUT = 30.0
# The answer comes after the checks and the loading: TURRET_GATE_SECONDS, TURRET_ACTIVATION_SECONDS.
ADMIN_TIMEOUT = 600.0


def call(url: str, path: str, body: dict[str, Any] | None = None, key: str | None = None) -> dict[str, Any]:
    """GET `path`, or POST a JSON `body` to it, and return the JSON answer.

    Raises ServiceError if no service answers, AnswerError with the service's message if it refuses.
    """
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    content = None if body is None else json.dumps(body).encode()
    if not re.fullmatch(r"https?://[^@\s]+", url):
        raise ServiceError(
            f"--url {without_credentials(url)!r} is not an address without user and password; give one like "
            "http://127.0.0.1:8000, and the key of the service as TURRET_API_KEY or TURRET_ADMIN_KEY"
        )
    try:
        request = Request(url.rstrip("/") + path, content, headers)
        with _opener(url).open(
            request, timeout=ADMIN_TIMEOUT if path.startswith("/admin") else TIMEOUT
        ) as response:
            return _read_object(url, response.read())
    except HTTPError as error:
        with error:
            raise AnswerError(f"{url} answered {error.code}: {_message(error)}", error.code) from None
    except (ValueError, InvalidURL):  # whose text may have a part of a password
        raise ServiceError(
            f"--url {url}, or http_proxy, is not an address; give one like http://127.0.0.1:8000"
        ) from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise ServiceError(
            f"{url}: no service answers there ({reason}); start one with `turret serve`, or name its --url"
        ) from None


def _opener(url: str) -> OpenerDirector:
    """Bypass the proxy for a service on this machine."""
    is_here = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    return build_opener(ProxyHandler({})) if is_here else build_opener()


def _read_object(url: str, content: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise ServiceError(f"{url} answers, but not with a JSON object; is it a Turret service?")
    return answer


def wait_until_ready(url: str, seconds: float) -> None:
    """Wait until the service is ready. Raises ServiceError after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        try:
            call(url, "/readyz")
        except ServiceError:
            if time.monotonic() >= end:
                raise
            time.sleep(0.1)
        else:
            return


def _message(refusal: HTTPError) -> str:
    """The message of an error response, with its field."""
    try:
        error = json.load(refusal)["error"]
        field = f"{error['field']}: " if error.get("field") else ""
        return f"{field}{error['message']}"
    except (OSError, HTTPException, ValueError, LookupError, TypeError, AttributeError):
        return "it did not say why; is it a Turret service?"
