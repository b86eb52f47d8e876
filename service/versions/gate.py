"""The checks of a version before it goes live."""

from collections.abc import Iterator
from contextlib import suppress
from typing import get_args

from turret.service.versions.folder import without_folder
from turret.service.versions.gate_report import Check, GateReport, GateRequest, Reason, Step, reported
from turret.service.versions.memory import available_bytes, in_words, needed_bytes
from turret.service.versions.recorded import compare_recorded
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import K, check_golden, load_golden, mean_overlap
from turret.tower.config import MEMORY_FACTOR
from turret.tower.engines.access import check_loaded
from turret.tower.errors import BundleError
from turret.tower.format.checksums import check_files
from turret.tower.format.listing import version_folder
from turret.tower.format.manifest import manifest_digest, read_manifest

_STEPS: tuple[Step, ...] = get_args(Step)


def run_gate(request: GateRequest) -> GateReport:
    """Check a version, store the report and return it; a failed check is not an exception."""
    gate = _Gate(request)
    return reported(request, tuple(gate.checks()), gate.manifest)


def crashed(request: GateRequest, how: str) -> GateReport:
    """Report that the process that checked a version crashed."""
    message = f"checking version {request.version} ended {how}; export it again"
    return reported(request, (Check(name="crashed", passed=False, words=message),))


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
        promised, minimum = choice.recall if choice else 0.0, self._request.recall_minimum
        remedy = f"index it again with `turret index --recall {max(promised, minimum):g}`"
        if not measured:
            raise BundleError(f"its index is approximate, but its recall was not measured; {remedy}")
        worst = min(measured, key=lambda point: point.recall)
        result = f"its index finds {worst.recall:.4f} of the best {worst.k} among {worst.among}"
        if worst.recall < promised:
            raise BundleError(f"{result}, less than the {promised:g} that it was made for; {remedy}")
        if worst.recall < minimum:
            raise BundleError(
                f"{result}, less than TURRET_RECALL_MINIMUM = {minimum:g}; {remedy}, or lower that setting"
            )
        return f"{result}, and no less elsewhere"

    def metric(self) -> str:
        """The recorded metric of the version is not far below that of the live version."""
        assert self._bundle is not None
        request, live = self._request, None
        if request.compared:
            return "both versions were compared on the same events"
        with suppress(BundleError):  # a live version that can't be read is to be replaced
            if request.live is not None and request.live != request.version:
                live = read_manifest(request.root / request.live)
        return compare_recorded(self._bundle.manifest, live)

    def overlap(self) -> str:
        """The answers of the version overlap enough with those of the live version."""
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
