"""The versions of a folder, with the reports of their last checks."""

from pathlib import Path

from turret.service.shown import without_folder
from turret.service.versions.gate import GateReport, read_report
from turret.tower.format.listing import VersionSummary, versions


class CheckedVersion(VersionSummary):
    """A version of the folder, with the report of its last check."""

    gate: GateReport | None = None


def checked_versions(root: Path) -> list[CheckedVersion]:
    """List the bundles under `root`, oldest first. Raises BundleError when `root` is not a folder."""
    return [_checked(root, summary) for summary in versions(root)]


def _checked(root: Path, summary: VersionSummary) -> CheckedVersion:
    error = without_folder(summary.error, root) if summary.error else None
    fields = summary.model_dump(exclude={"error"})
    return CheckedVersion(**fields, error=error, gate=read_report(root, summary.version))
