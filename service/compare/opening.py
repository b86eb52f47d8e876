"""Opening of a version that isn't live: checked by the gate once, and within the available memory."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from turret.service.compare.chosen import Chosen, ChosenVersion
from turret.service.errors import BusyError, ConflictError, NotFoundError, NotReadyError
from turret.service.versions.activation import Activator
from turret.service.versions.gate import Passage
from turret.service.versions.holder import ModelHolder
from turret.service.versions.loaded_model import LoadedModel, open_live
from turret.service.versions.memory import available_bytes, give_back, in_words, needed_bytes
from turret.tower.errors import BundleError
from turret.tower.format.listing import version_folder
from turret.tower.format.manifest import read_manifest
from turret.tower.format.snapshot import Snapshot

WATCH_SECONDS = 1.0
# A version with few answers in common, or of low recall, is worth a look.
_ACCEPTED = frozenset({"overlap", "recall"})
_NO_MEMORY = "the memory is full; give the service more, or compare a smaller version"
_NONE_OPEN = "no version is open for comparison; open one with POST /admin/comparison"


class VersionOpener:
    """Opens versions beside the live one, in a thread of low priority.

    Like a canary, a version passes the gate first, in a process of its own: one that hangs or crashes ends
    that process. Raises NotFoundError for an unknown version, ConflictError for one that can't be opened,
    NotReadyError while this worker activates another.
    """

    def __init__(
        self,
        model_holder: ModelHolder,
        activator: Activator,
        thread: ThreadPoolExecutor,
        memory_factor: float,
    ) -> None:
        self._model_holder = model_holder
        self._activator = activator
        self._thread = thread
        self._memory_factor = memory_factor

    def find(self, version: str) -> None:
        """Raise NotFoundError, naming the versions that exist, unless this one does."""
        _folder(self._model_holder.root, version)

    async def open(self, version: str, manifest: str | None) -> LoadedModel:
        """Open a version; with the SHA-256 of a `manifest` that has passed the gate, only that content."""
        traffic = self._model_holder.traffic
        for model in (traffic.canary, traffic.shadow):
            if model is not None and model.version == version:
                return model
        checked = Snapshot(manifest) if manifest else await self._pass_gate(version)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._open, version, checked)

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


class ComparedVersion:
    """The version that this worker holds for the comparison: the one that is chosen for all workers.

    Each worker opens it with its first call, and releases it once another one is chosen, or none.
    """

    def __init__(self, model_holder: ModelHolder, chosen: ChosenVersion, opener: VersionOpener) -> None:
        self._model_holder = model_holder
        self._chosen = chosen
        self._opener = opener
        self._model: LoadedModel | None = None
        self._one_at_a_time = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None

    def chosen(self, version: str | None = None) -> Chosen | None:
        """The chosen version unless it is live; with a `version`, only that one."""
        chosen = self._chosen.read()
        if chosen is None or chosen.version == self._model_holder.version:
            return None
        return chosen if version in (None, chosen.version) else None

    def clear(self, version: str | None) -> None:
        """Choose none; with a `version`, only if that one is chosen."""
        self._chosen.clear(version)

    async def opened(self, version: str | None) -> LoadedModel:
        """The model of `version`, by default the chosen one, opened if this worker doesn't have it.

        Raises NothingLiveError without a live version, ConflictError if none is chosen, or if it is the live
        one or was changed, and as VersionOpener.
        """
        async with self._one_at_a_time:
            live, chosen = self._model_holder.live.version, self._chosen.read()
            if version is None:
                if chosen is None:
                    raise ConflictError("version", None, _NONE_OPEN)
                version = chosen.version
            if version == live:
                self._chosen.clear(version)
                await self._release()
                message = f"version {version} is live now; compare another one of GET /v1/versions with it"
                raise ConflictError("version", version, message)
            manifest = chosen.manifest if chosen and chosen.version == version else None
            if self._model is not None and manifest == self._model.bundle.snapshot.manifest:
                await self._check_unchanged(self._model)
                self._chosen.renew(version)
                return self._model
            return await self._open(version, manifest)

    async def close(self) -> None:
        """Release the version."""
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        self._model = None

    async def _open(self, version: str, manifest: str | None) -> LoadedModel:
        self._opener.find(version)
        await self._release()  # both would take the memory of two
        try:
            self._model = model = await self._opener.open(version, manifest)
        except ConflictError:
            self._chosen.clear(version)
            raise
        self._chosen.choose(version, model.bundle.snapshot.manifest)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        return model

    async def _check_unchanged(self, model: LoadedModel) -> None:
        """Raise ConflictError, and release the model, if its files were replaced, changed or removed."""
        changes = await asyncio.to_thread(model.bundle.changed_files)
        if changes:
            self._chosen.clear(model.version)
            await self._release()
            message = (
                f"files of version {model.version} changed or are gone since it was opened ({changes[0]}); "
                "open it again, or another one of GET /v1/versions"
            )
            raise ConflictError("version", model.version, message)

    async def _watch(self) -> None:
        """Release the version once it has expired, or another worker has closed or replaced it."""
        while self._model is not None:
            await asyncio.sleep(WATCH_SECONDS)
            async with self._one_at_a_time:
                if self._model is not None and self.chosen(self._model.version) is None:
                    await self._release()

    async def _release(self) -> None:
        if self._model is not None:
            self._model = None
            await asyncio.to_thread(give_back)


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
