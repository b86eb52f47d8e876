"""The checks of a version before it goes live, and the commands on a folder that need no running service.

Reports are kept in `<bundles>/.gate/<version>.json`.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

from pydantic import ValidationError

from turret.data.errors import DataError
from turret.data.files import new_file
from turret.data.text import text_table
from turret.service.errors import ServiceError
from turret.service.versions.folder import activation_lock, without_folder
from turret.service.versions.memory import available_bytes, in_words, needed_bytes
from turret.service.versions.record import Stored, now
from turret.service.versions.recorded import compare_recorded
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import GoldenQuery, check_golden, load_golden
from turret.tower.config import MEMORY_FACTOR, OVERLAP_MINIMUM, RECALL_MINIMUM
from turret.tower.engines.access import check_loaded
from turret.tower.errors import BundleError, EncodingError
from turret.tower.format.checksums import check_files
from turret.tower.format.listing import VersionSummary, current, point, version_folder, versions
from turret.tower.format.manifest import manifest_digest, read_manifest
from turret.tower.format.safe_open import check_folder, read_regular
from turret.tower.retrieval import Ranking, Retriever

FOLDER = ".gate"
_REPORT_BYTES = 100_000
K = 10
Step = Literal["unknown", "memory", "checksum", "soundness", "golden", "recall", "metric", "overlap"]
Reason = Step | Literal["crashed"]
_STEPS: tuple[Step, ...] = get_args(Step)


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


def run_gate(request: GateRequest) -> GateReport:
    """Check a version, store the report and return it; a failed check is not an exception."""
    gate = _Gate(request)
    return _reported(request, tuple(gate.checks()), gate.manifest)


def crashed(request: GateRequest, how: str) -> GateReport:
    """Report that the process that checked a version crashed."""
    message = f"checking version {request.version} ended {how}; export it again"
    return _reported(request, (Check(name="crashed", passed=False, words=message),))


def _reported(request: GateRequest, checks: tuple[Check, ...], manifest: str | None = None) -> GateReport:
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


class _Gate:
    """The checks of one version, a method by each name: it returns a message, or raises BundleError."""

    def __init__(self, request: GateRequest) -> None:
        self._request = request
        self._folder = request.root / request.version
        self._bundle: Bundle | None = None
        self.manifest: str | None = None

    def checks(self) -> Iterator[Check]:
        """Run the checks, up to the first that fails."""
        for name in _STEPS:
            try:
                words = getattr(self, name)()
            except (BundleError, MemoryError) as error:
                yield self._check(name, str(error) or "the memory is full")
                return
            if name != "unknown":
                yield self._check(name, words, True)

    def _check(self, name: Reason, words: str, passed: bool = False) -> Check:
        return Check(name=name, passed=passed, words=without_folder(words, self._request.root))

    def unknown(self) -> str:
        """The version exists."""
        version_folder(self._request.root, self._request.version)
        return "it is there"

    def memory(self) -> str:
        """It fits into memory beside the live one; checked before it is read."""
        try:
            manifest = read_manifest(self._folder)
        except BundleError:
            return "its manifest can't be read"
        needed = needed_bytes(manifest, MEMORY_FACTOR)
        available = available_bytes()
        if available is None:
            return f"about {in_words(needed)} needed; this system doesn't report available memory"
        if needed > available:
            raise BundleError(
                f"version {self._request.version} needs about {in_words(needed)} beside the live one, and "
                f"{in_words(available)} are left; give the service more memory, or stop it and activate then"
            )
        return f"about {in_words(needed)} of {in_words(available)} needed"

    def checksum(self) -> str:
        """Every file is unchanged since it was published."""
        self.manifest = manifest_digest(self._folder)
        manifest = read_manifest(self._folder)
        if manifest.version != self._request.version:
            raise BundleError(f"{self._folder} holds version {manifest.version!r}; rename it to that")
        check_files(self._folder, manifest)
        return f"all {len(manifest.files)} files are as they were published"

    def soundness(self) -> str:
        """The parts match, vectors are finite, and the index's engine holds all items."""
        self._bundle = Bundle.open(self._folder, verify=False, content=self.manifest)
        check_loaded(self._bundle.manifest)
        return f"{len(self._bundle.vectors)} vectors are finite and of sane lengths"

    def golden(self) -> str:
        """The golden queries have the same answers as when it was published."""
        assert self._bundle is not None
        check_golden(self._bundle)
        self._bundle.check_unchanged()
        return "the recorded queries are answered as when it was published"

    def recall(self) -> str:
        """The recall of an approximate index is high enough, by the table in the manifest."""
        assert self._bundle is not None
        manifest = self._bundle.manifest
        if manifest.index.is_exact:
            return "its index is exact"
        measured, choice = manifest.recall, manifest.index_choice
        asked, minimum = choice.recall if choice else 0.0, self._request.recall_minimum
        remedy = f"index it again with `turret index --recall {max(asked, minimum):g}`"
        if not measured:
            raise BundleError(f"its index is approximate, but its recall was not measured; {remedy}")
        worst = min(measured, key=lambda point: point.recall)
        result = f"its index finds {worst.recall:.4f} of the best {worst.k} among {worst.among}"
        if worst.recall < asked:
            raise BundleError(f"{result}, less than the {asked:g} that it was made for; {remedy}")
        if worst.recall < minimum:
            raise BundleError(
                f"{result}, less than TURRET_RECALL_MINIMUM = {minimum:g}; {remedy}, or lower that setting"
            )
        return f"{result}, and no less elsewhere"

    def metric(self) -> str:
        """Its recorded metric is not far below that of the live version."""
        assert self._bundle is not None
        request, live = self._request, None
        if request.compared:
            return "both versions were compared on the same events"
        with suppress(BundleError):  # a live version that can't be read is to be replaced
            if request.live is not None and request.live != request.version:
                live = read_manifest(request.root / request.live)
        return compare_recorded(self._bundle.manifest, live)

    def overlap(self) -> str:
        """Its answers overlap enough with those of the live version."""
        assert self._bundle is not None
        request = self._request
        if request.live is None or request.live == request.version:
            return "there is no other version to compare it with"
        try:
            recorded = load_golden(request.root / request.live).queries
        except BundleError as error:
            return f"the live version's recorded queries can't be read ({error})"
        overlap = mean_overlap(self._bundle, recorded)
        result = f"its best {K} have {overlap:.3f} in common with those of version {request.live}"
        if overlap < request.overlap_minimum:
            raise BundleError(
                f"{result} on {len(recorded)} recorded histories, less than {request.overlap_minimum}; "
                "activate it with force if that is intended"
            )
        return result


def overlap_between(one: Sequence[int | str], other: Sequence[int | str]) -> float:
    """Return the share of the longer answer that is in the other one; 1 for two empty answers."""
    longest = max(len(one), len(other))
    return len(set(map(str, one)) & set(map(str, other))) / longest if longest else 1.0


def mean_overlap(bundle: Bundle, recorded: Sequence[GoldenQuery]) -> float:
    """Answer another version's recorded queries, and return the mean overlap at 10 with its answers.

    It reads the recorded events as in service, with their times and kinds, and merged. A history without
    known items, or that it can't encode, has overlap 0. Features that it doesn't read are left out, and so
    are items of histories unless the other version ranked some.
    """
    retriever = Retriever(bundle)
    names = {feature.name for feature in bundle.user_features}
    ranks_history = any(not set(query.history).isdisjoint(query.items) for query in recorded)
    overlaps = []
    for query in recorded:
        features = {name: value for name, value in query.features.items() if name in names}
        ranking: Ranking | None = None
        with suppress(EncodingError, DataError):
            rows, times, kinds, _, _ = query.read_by(bundle)
            out = rows[:0] if ranks_history else rows
            if bundle.encoder.can_encode(rows, features):
                (ranking,) = retriever.recommend([rows], [features], K, [out], [times], kinds=[kinds])
        answer = bundle.vocabulary.ids(ranking.rows) if ranking else []
        overlaps.append(overlap_between(query.items[:K], answer))
    return sum(overlaps) / len(overlaps) if overlaps else 1.0


_WIDTH = 110


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
    # Not `Settings`: a trainer activates versions too, and its image lacks pydantic-settings.
    value = os.environ.get(variable, str(default))
    try:
        return float(value)
    except ValueError:
        raise ServiceError(f"{variable} can't be {value!r}; give a number, such as {default:g}") from None
