"""A bundle in memory with its retriever. A request is answered by one of them from beginning to end."""

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from turret.service.latency import LatencyEstimate
from turret.service.versions.record import Routes
from turret.tower.bundle.bundle import Bundle, load
from turret.tower.errors import BundleError, EncodingError, EngineError
from turret.tower.format.pointer import check_version
from turret.tower.format.snapshot import Snapshot, check_content, take_snapshot
from turret.tower.retrieval.retriever import Retriever

_CHANGED = "files of version %s changed since its check; their checksums are compared again"
_log = logging.getLogger("turret.activation")


@dataclass(frozen=True)
class LoadedModel:
    """A bundle, its retriever, and the latency of its answers in this process.

    `since` is when it was loaded; `number` is that of its activation, 0 for a canary or a shadow.
    """

    bundle: Bundle
    retriever: Retriever
    since: datetime
    number: int = 0
    latency: LatencyEstimate = field(default_factory=LatencyEstimate, compare=False)

    @property
    def version(self) -> str:
        """The bundle's version."""
        return self.bundle.manifest.version


@dataclass(frozen=True)
class TrafficSplit:
    """The routes with their loaded versions; None for a version that can't be loaded."""

    routes: Routes
    canary: LoadedModel | None = None
    shadow: LoadedModel | None = None
    candidate: LoadedModel | None = None


def open_live(root: Path, version: str, number: int = 0, pinned: Snapshot | None = None) -> LoadedModel:
    """Load a version; its content has to match `pinned`, if given.

    Checks everything but the checksums of files that are unchanged since their last verification. If `pinned`
    has the state of the files, these have passed the gate, and only changed ones are checked again. Raises
    BundleError if it can't be served.
    """
    if pinned and pinned.files:
        bundle = _open_checked(root, version, pinned)
    else:
        bundle = load(root, version, trust_note=True, content=pinned.manifest if pinned else None)
    latency = LatencyEstimate(bundle.manifest.index.is_remote)
    live = LoadedModel(bundle, Retriever(bundle), datetime.now(UTC), number, latency)
    _warm_up(live)
    return live


def _warm_up(live: LoadedModel) -> None:
    """Warm up lazily built state so that the first request does not pay for it."""
    rows = np.arange(min(len(live.bundle.vocabulary), 10))
    # Other histories may be encodable, and an engine may be back by the first request.
    with suppress(EncodingError, EngineError):
        live.bundle.vocabulary.known_rows(live.bundle.vocabulary.ids(rows))
        live.retriever.recommend([rows], [{}], len(rows), [rows])
        live.bundle.encoder.encode_each([rows] * 2, [{}] * 2)


def _open_checked(root: Path, version: str, checked: Snapshot) -> Bundle:
    check_version(version)
    folder = root / version
    before = take_snapshot(folder)
    check_content(folder, before, checked.manifest)
    is_changed = before != checked
    if is_changed:
        _log.warning(_CHANGED, version)
    bundle = Bundle.open(folder, verify=is_changed, since=before)
    if bundle.manifest.version != version:
        raise BundleError(f"{folder} holds version {bundle.manifest.version!r}; rename it to that")
    return bundle
