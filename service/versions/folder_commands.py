"""The commands on a folder of bundles that need no running service: list its versions, and activate one."""

import json
import os
from contextlib import suppress
from pathlib import Path

from turret.data.text import text_table
from turret.service.errors import ServiceError
from turret.service.versions.folder import activation_lock, without_folder
from turret.service.versions.gate import run_gate
from turret.service.versions.gate_report import GateReport, GateRequest, read_report
from turret.tower.config import OVERLAP_MINIMUM, RECALL_MINIMUM
from turret.tower.errors import BundleError
from turret.tower.format.listing import VersionSummary, current, point, versions

_WIDTH = 110


class CheckedVersion(VersionSummary):
    """A version of the folder, with the report of its last check."""

    gate: GateReport | None = None


def checked_versions(root: Path) -> list[CheckedVersion]:
    """List the bundles under `root`, oldest first. Raises BundleError when `root` is not a folder."""
    return [
        CheckedVersion(
            **summary.model_dump(exclude={"error"}),
            error=without_folder(summary.error, root) if summary.error else None,
            gate=read_report(root, summary.version),
        )
        for summary in versions(root)
    ]


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
    print(text_table(headings, rows, width=_WIDTH, right=False))


def _gate_text(report: GateReport | None) -> str:
    if report is None:
        return ""
    return ("forced: " if report.passed else "failed: ") + report.refusal if report.failed else "passed"


def activate_in_folder(version: str, bundles: Path, force: bool = False, compared: bool = False) -> str:
    """Move the folder's pointer to a version that passes the gate, as in a service; return a message.

    Raises BundleError.
    """
    request = GateRequest(
        root=bundles,
        version=version,
        force=force,
        compared=compared,
        overlap_minimum=_from_environment("TURRET_OVERLAP_MINIMUM", OVERLAP_MINIMUM),
        recall_minimum=_from_environment("TURRET_RECALL_MINIMUM", RECALL_MINIMUM),
    )
    with suppress(BundleError):  # the activation repairs a damaged pointer
        request = request.model_copy(update={"live": current(bundles)})
    report = run_gate(request)
    if not report.passed:
        raise BundleError(report.refusal)
    with activation_lock(bundles):
        point(bundles, version)
    return (
        f"{version} is current in {bundles}; a running service keeps its version "
        "until `turret activate` is given its --url."
    )


def _from_environment(variable: str, default: float) -> float:
    # `Settings` would not do: a trainer activates versions too, and its image lacks pydantic-settings.
    value = os.environ.get(variable, str(default))
    try:
        return float(value)
    except ValueError:
        raise ServiceError(f"{variable} can't be {value!r}; give a number, such as {default:g}") from None
