"""The report of the gate on a version, which is kept in `<bundles>/.gate/<version>.json`."""

from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from turret.data.files import new_file
from turret.service.versions.record import Stored, now
from turret.tower.errors import BundleError
from turret.tower.format.safe_open import check_folder, read_regular

FOLDER = ".gate"
_REPORT_BYTES = 100_000
Step = Literal["unknown", "memory", "checksum", "soundness", "golden", "recall", "metric", "overlap"]
Reason = Step | Literal["crashed"]


class Check(Stored):
    """The result of one check, in `words`."""

    name: Reason
    passed: bool
    words: str


class GateRequest(Stored):
    """The version to check, the live one, and the thresholds (see `service.settings`).

    `compared`: the caller has compared both on the same events, so their recorded metrics say no more.
    """

    root: Path
    version: str
    live: str | None = None
    force: bool = False
    compared: bool = False
    overlap_minimum: float = 0.0
    recall_minimum: float = 0.0


class GateReport(Stored):
    """The checks in their order, up to the first that failed.

    `forced`: a failed check of the metric or the overlap is accepted. `manifest`: the SHA-256 of the manifest
    of the checked files; only these may be activated.
    """

    version: str
    time: str
    forced: bool
    checks: tuple[Check, ...]
    manifest: str | None = None

    @property
    def failed(self) -> Check | None:
        """The check that failed; it is the last one."""
        return None if self.checks[-1].passed else self.checks[-1]

    @property
    def passed(self) -> bool:
        """Whether the version may go live."""
        return self.failed is None or (self.forced and self.failed.name in ("metric", "overlap"))

    @property
    def reason(self) -> Reason:
        """The name of the failed check."""
        return self.checks[-1].name

    @property
    def refusal(self) -> str:
        """The message of the failed check."""
        return self.checks[-1].words


def reported(request: GateRequest, checks: tuple[Check, ...], manifest: str | None = None) -> GateReport:
    """Make a report, and store it unless the folder is read-only: the activation log has a refusal too."""
    version, forced = request.version, request.force
    report = GateReport(version=version, time=now(), forced=forced, checks=checks, manifest=manifest)
    path = request.root / FOLDER / f"{report.version}.json"
    if checks[0].name != "unknown":
        with suppress(OSError, BundleError):
            path.parent.mkdir(exist_ok=True)
            check_folder(path.parent)
            with new_file(path) as fresh:
                fresh.write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return report


def read_report(root: Path, version: str) -> GateReport | None:
    """Return the report of the last check of a version, if one was stored."""
    try:
        check_folder(root / FOLDER)
        return GateReport.model_validate_json(read_regular(root / FOLDER / f"{version}.json", _REPORT_BYTES))
    except (OSError, BundleError, ValidationError):
        return None
