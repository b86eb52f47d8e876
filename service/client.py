"""The calls of the command line to a running service, and the same on a folder of bundles."""

import json
import os
import re
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPException, InvalidURL
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

from turret.data.errors import without_credentials
from turret.data.text import text_table
from turret.service.errors import AnswerError, ServiceError
from turret.service.versions.folder import activation_lock
from turret.service.versions.gate import GateReport, GateRequest, checked_versions, run_gate
from turret.tower.config import OVERLAP_MINIMUM, RECALL_MINIMUM
from turret.tower.engines.collections import move_alias
from turret.tower.errors import BundleError
from turret.tower.format.listing import current, point
from turret.tower.format.manifest import read_manifest

SHOWN_HISTORY = 10
WIDTH = 110
TIMEOUT = 30.0
# The answer comes after the checks and the loading: TURRET_GATE_SECONDS, TURRET_ACTIVATION_SECONDS.
ADMIN_TIMEOUT = 600.0


def call(url: str, path: str, body: dict[str, Any] | None = None, key: str | None = None) -> dict[str, Any]:
    """GET `path`, or POST a JSON `body` to it, and return the JSON answer.

    Raises ServiceError if no service answers, AnswerError with the service's message if it refuses.
    """
    if not re.fullmatch(r"https?://[^@\s]+", url):
        raise ServiceError(
            f"--url {without_credentials(url)!r} is not an address without user and password; give one like "
            "http://127.0.0.1:8000, and the key of the service as TURRET_API_KEY or TURRET_ADMIN_KEY"
        )
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    content = None if body is None else json.dumps(body).encode()
    seconds = ADMIN_TIMEOUT if path.startswith("/admin") else TIMEOUT
    try:
        request = Request(url.rstrip("/") + path, content, headers)
        with _opener(url).open(request, timeout=seconds) as response:
            answer = response.read()
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
    with suppress(ValueError):
        if isinstance(found := json.loads(answer), dict):
            return found
    raise ServiceError(f"{url} answers, but not with a JSON object; is it a Turret service?")


def _opener(url: str) -> OpenerDirector:
    """Bypass the proxy for a service on this machine."""
    is_here = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    return build_opener(ProxyHandler({})) if is_here else build_opener()


def wait_until_ready(url: str, seconds: float) -> None:
    """Wait until the service is ready. Raises ServiceError after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        try:
            call(url, "/readyz")
            return
        except ServiceError:
            if time.monotonic() >= end:
                raise
        time.sleep(0.1)


def _message(refusal: HTTPError) -> str:
    """The message of an error response, with its field."""
    try:
        error = json.load(refusal)["error"]
        field = f"{error['field']}: " if error.get("field") else ""
        return f"{field}{error['message']}"
    except (OSError, HTTPException, ValueError, LookupError, TypeError, AttributeError):
        return "it did not say why; is it a Turret service?"


def recommend(
    url: str, k: int, user: int | str | None, history: Sequence[int | str] | None, wait: float
) -> dict[str, Any]:
    """Request k items for a history, or for the stored history of `user`."""
    wait_until_ready(url, wait)
    body: dict[str, Any] = {"k": k}
    if history is not None:
        body["history"] = list(history)
    elif user is not None:
        body["user_id"] = user
    return call(url, "/v1/recommend", body, key=os.environ.get("TURRET_API_KEY"))


def print_recommendations(answer: dict[str, Any], history: Sequence[str], as_json: bool) -> None:
    """Print an answer beside the newest items of the history (formatted, oldest first)."""
    if as_json:
        print(json.dumps(answer, indent=2, ensure_ascii=False))
        return
    headings = f"history, newest first ({len(history)} items)", "what next?", "score", "source"
    newest = list(reversed(history))[:SHOWN_HISTORY]
    rows = []
    for used, item in zip_longest(newest, answer["items"]):
        of_item = ("", "", "")
        if item is not None:
            of_item = item_text(item["id"], item["fields"]), f"{item['score']:.2f}", item["source"]
        rows.append((used or "", *of_item))
    print(text_table(headings, rows, f"version {answer['version']}", width=WIDTH, right=("score",)))
    if answer.get("unknown_items"):
        print(f"not in this version's catalog: {', '.join(map(str, answer['unknown_items']))}")


def item_text(item: int | str, fields: dict[str, Any]) -> str:
    """Format an item: its title or first text, its first list such as genres, and its id."""
    title = fields.get("title") or next((text for text in fields.values() if isinstance(text, str)), None)
    lists = [", ".join(map(str, values)) for values in fields.values() if isinstance(values, list) and values]
    return f"{title}{f' ({lists[0]})' if lists else ''} [{item}]" if title else str(item)


def stored_history(url: str, user: str) -> list[str]:
    """The ids of a user's stored history, oldest first; empty, with a notice, if the key may not read it."""
    try:
        events = call(url, f"/v1/users/{quote(user, safe='')}", key=os.environ.get("TURRET_API_KEY"))[
            "events"
        ]
    except AnswerError as error:
        if error.status != 403:
            raise
        print("the stored history isn't shown: it needs a key of the scope write", file=sys.stderr)
        return []
    return [str(event["item_id"]) for event in events]


def print_versions(bundles: Path, as_json: bool) -> None:
    """List the bundles of a folder, oldest first."""
    summaries = checked_versions(bundles)
    if as_json:
        print(json.dumps([summary.model_dump(mode="json") for summary in summaries], indent=2))
        return
    rows = []
    for summary in summaries:
        ndcg = summary.metrics.get("test", {}).get("towers", {}).get("ndcg@10", {}).get("mean")
        row = (
            "*" if summary.is_current else "",
            summary.version,
            summary.created or "",
            (summary.data_until or "")[:16],
            f"{summary.item_count:,}" if summary.item_count else "",
            "not evaluated" if ndcg is None else f"{ndcg:.4f}",
            summary.error or ("current" if summary.is_current else ""),
            _gate_text(summary.gate),
        )
        rows.append(row)
    headings = ("", "version", "created", "data until", "items", "ndcg@10", "state", "gate")
    print(text_table(headings, rows, width=WIDTH, right=False))


def _gate_text(report: GateReport | None) -> str:
    if report is None:
        return ""
    return ("forced: " if report.passed else "failed: ") + report.refusal if report.failed else "passed"


def activate_version(version: str, bundles: Path, url: str | None, force: bool = False) -> str:
    """Activate in a running service, or move the folder's pointer; return a message."""
    if url is None:
        _pass_gate(version, bundles, force)
        with activation_lock(bundles):
            point(bundles, version)
            move_alias(read_manifest(bundles / version))
        return (
            f"{version} is current in {bundles}; a running service keeps its version "
            "until `turret activate` is given its --url."
        )
    body = {"version": version} | ({"force": True} if force else {})
    return _swapped(url, call(url, "/admin/activate", body, key=_admin_key(bundles)))


def live_version(bundles: Path, url: str | None) -> str | None:
    """The version that the running service serves, or the current one of the folder; None for none."""
    if url is None:
        return current(bundles)
    live: str | None = read_routes(bundles, url)["live"]
    return live


def read_routes(bundles: Path, url: str) -> dict[str, Any]:
    """The `live` version of a running service, its `canary` and its `shadow`; None for each without one."""
    return call(url, "/admin/routes", key=_admin_key(bundles))


def set_routes(bundles: Path, url: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Change the canary or the shadow of a running service: `{"version", "share"}`, or None to end it."""
    return call(url, "/admin/routes", changes, key=_admin_key(bundles))


def _pass_gate(version: str, bundles: Path, force: bool) -> None:
    """Check a version against the current one, as a service does. Raises BundleError."""
    request = GateRequest(
        root=bundles,
        version=version,
        force=force,
        overlap_minimum=_from_environment("TURRET_OVERLAP_MINIMUM", OVERLAP_MINIMUM),
        recall_minimum=_from_environment("TURRET_RECALL_MINIMUM", RECALL_MINIMUM),
    )
    with suppress(BundleError):  # the activation repairs a damaged pointer
        request = request.model_copy(update={"live": current(bundles)})
    report = run_gate(request)
    if not report.passed:
        raise BundleError(report.refusal)


def _from_environment(variable: str, default: float) -> float:
    # Not `Settings`: a trainer activates versions too, and its image lacks pydantic-settings.
    value = os.environ.get(variable, str(default))
    try:
        return float(value)
    except ValueError:
        raise ServiceError(f"{variable} can't be {value!r}; give a number, such as {default:g}") from None


def roll_back(bundles: Path, url: str) -> str:
    """Roll a running service back to its previous version; return a message."""
    return _swapped(url, call(url, "/admin/rollback", {}, key=_admin_key(bundles)))


def _swapped(url: str, answer: dict[str, Any]) -> str:
    behind = f" Processes {answer['behind']} have not switched yet." if answer.get("behind") else ""
    late = answer.get("replicas_behind")
    replicas = f" The replicas {', '.join(late)} do not serve it yet." if late else ""
    warning = f" Warning: {answer['warning']}." if answer.get("warning") else ""
    before = answer["previous"] or "nothing"
    return f"{url} serves {answer['version']} now (before: {before}).{behind}{replicas}{warning}"


def _admin_key(bundles: Path) -> str:
    if key := os.environ.get("TURRET_ADMIN_KEY"):
        return key
    path = Path(os.environ.get("TURRET_ADMIN_KEY_FILE") or bundles / "admin.key")
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ServiceError(
            f"{path}: the admin key can't be read ({error.strerror}); set TURRET_ADMIN_KEY, "
            "or name the service's folder with --bundles"
        ) from None
