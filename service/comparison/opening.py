"""Opening of a version that isn't live: checked by the gate once, and within the available memory."""

from pathlib import Path

from turret.service.comparison.background import BackgroundThread
from turret.service.errors import BusyError, ConflictError, NotFoundError, NotReadyError
from turret.service.versions.activation import Activator
from turret.service.versions.gate import Passage
from turret.service.versions.holder import ModelHolder
from turret.service.versions.loaded_model import LoadedModel, open_live
from turret.service.versions.memory import available_bytes, in_words, needed_bytes
from turret.tower.errors import BundleError
from turret.tower.format.listing import version_folder
from turret.tower.format.manifest import read_manifest
from turret.tower.format.snapshot import Snapshot

# A version with few answers in common, or of low recall, is worth a look.
_ACCEPTED = frozenset({"overlap", "recall"})
_NO_MEMORY = "the memory is full; give the service more, or compare a smaller version"


class VersionOpener:
    """Opens versions beside the live one, in a thread of low priority.

    Like a canary, a version passes the gate first, in a process of its own: one that hangs or crashes ends
    that process. Raises NotFoundError for an unknown version, ConflictError for one that can't be opened,
    NotReadyError while this worker activates another.
    """

    def __init__(
        self, model_holder: ModelHolder, activator: Activator, thread: BackgroundThread, memory_factor: float
    ) -> None:
        self._model_holder = model_holder
        self._activator = activator
        self._thread = thread
        self._memory_factor = memory_factor

    async def find(self, version: str) -> None:
        """Raise NotFoundError, naming the versions that exist, unless this one does."""
        await self._thread.run(_folder, self._model_holder.root, version)

    async def open(self, version: str, manifest: str | None) -> LoadedModel:
        """Open a version; with the SHA-256 of a `manifest` that has passed the gate, only that content."""
        loaded = self._loaded(version)
        if loaded is not None:
            return loaded
        checked = Snapshot(manifest) if manifest else await self._pass_gate(version)
        return await self._thread.run(self._open, version, checked)

    def _loaded(self, version: str) -> LoadedModel | None:
        """The canary or the shadow, if it is this version."""
        traffic = self._model_holder.traffic
        loaded = (model for model in (traffic.canary, traffic.shadow) if model is not None)
        return next((model for model in loaded if model.version == version), None)

    async def _pass_gate(self, version: str) -> Snapshot | None:
        try:
            passage = await self._activator.check(version)
        except BusyError as error:
            raise NotReadyError("version", version, str(error), 2) from None
        _check_passage(version, passage)
        return passage.snapshot

    def _open(self, version: str, checked: Snapshot | None) -> LoadedModel:
        root = self._model_holder.root
        folder = _folder(root, version)
        try:
            needed = needed_bytes(read_manifest(folder), self._memory_factor)
            available = available_bytes()
            if available is not None and needed > available:
                raise ConflictError(
                    "version",
                    version,
                    f"version {version} needs about {in_words(needed)} beside the live one, and "
                    f"{in_words(available)} are left; give the service more memory, or compare a smaller one",
                )
            return open_live(root, version, 0, checked)
        except (BundleError, MemoryError) as error:
            raise ConflictError("version", version, str(error) or _NO_MEMORY) from None


def _folder(root: Path, version: str) -> Path:
    try:
        return version_folder(root, version)
    except BundleError as error:
        refused = NotFoundError if error.reason == "missing" else ConflictError
        raise refused("version", version, str(error)) from None


def _check_passage(version: str, passage: Passage) -> None:
    """Raise the error of a version that failed a check of its files, of its memory or of its cost."""
    failed = [check for check in passage.report.failed if check.name not in _ACCEPTED]
    if not failed:
        return
    refused = NotFoundError if failed[0].name == "unknown" else ConflictError
    raise refused("version", version, failed[0].words)
