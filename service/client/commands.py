"""The commands `turret recommend`, `versions`, `activate` and `rollback`."""

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.console import Console
from rich.table import Table

from turret.service.client.client import call, wait_until_ready
from turret.service.errors import AnswerError, ServiceError
from turret.service.versions.folder import activation_lock
from turret.service.versions.gate import GateReport, GateRequest, checked_versions, run_gate
from turret.tower.config import OVERLAP_MINIMUM, RECALL_MINIMUM
from turret.tower.engines.live import move_alias
from turret.tower.errors import BundleError
from turret.tower.format.manifest import read_manifest
from turret.tower.format.pointer import current, point

SHOWN_HISTORY = 10
WIDTH = 110


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
    return call(url, "/v1/recommend", body, key=_api_key())


def print_recommendations(answer: dict[str, Any], history: Sequence[str], as_json: bool) -> None:
    """Print an answer beside the newest items of the history (formatted, oldest first)."""
    if as_json:
        print(json.dumps(answer, indent=2, ensure_ascii=False))
        return
    table = Table(title=f"version {answer['version']}")
    table.add_column(f"history, newest first ({len(history)} items)")
    table.add_column("what next?")
    table.add_column("score", justify="right")
    table.add_column("source")
    newest = list(reversed(history))[:SHOWN_HISTORY]
    for used, item in zip_longest(newest, answer["items"]):
        if item is None:
            table.add_row(used, "", "", "")
        else:
            table.add_row(
                used or "", item_text(item["id"], item["fields"]), f"{item['score']:.2f}", item["source"]
            )
    Console(width=WIDTH, markup=False).print(table)
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
        events = call(url, f"/v1/users/{quote(user, safe='')}", key=_api_key())["events"]
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
    table = Table()
    is_checked = any(summary.gate for summary in summaries)
    headings = ["", "version", "created", "data until", "items", "ndcg@10", "state"]
    for heading in (*headings, *(["gate"] if is_checked else [])):
        table.add_column(heading)
    for summary in summaries:
        ndcg = summary.metrics.get("test", {}).get("towers", {}).get("ndcg@10", {}).get("mean")
        table.add_row(
            "*" if summary.is_current else "",
            summary.version,
            summary.created or "",
            (summary.data_until or "")[:16],
            f"{summary.item_count:,}" if summary.item_count else "",
            "not evaluated" if ndcg is None else f"{ndcg:.4f}",
            summary.error or ("current" if summary.is_current else ""),
            *([_gate_text(summary.gate)] if is_checked else []),
        )
    Console(width=WIDTH, markup=False).print(table)


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
    before = None
    with suppress(BundleError):  # the activation repairs a damaged pointer
        before = current(bundles)
    request = GateRequest(
        root=bundles,
        version=version,
        live=before,
        force=force,
        overlap_minimum=_from_environment("overlap_minimum", OVERLAP_MINIMUM),
        recall_minimum=_from_environment("recall_minimum", RECALL_MINIMUM),
    )
    report = run_gate(request)
    if not report.passed:
        raise BundleError(report.refusal)


def _from_environment(name: str, default: float) -> float:
    # Not `Settings`: a trainer activates versions too, and its image lacks pydantic-settings.
    variable = f"TURRET_{name.upper()}"
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


def _api_key() -> str | None:
    return os.environ.get("TURRET_API_KEY") or None


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
