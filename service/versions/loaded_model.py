"""A bundle in memory with its retriever. A request is answered by one of them from beginning to end."""

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from turret.service.latency import LatencyEstimate
from turret.service.versions.record import Routes
from turret.tower.bundle.bundle import Bundle, load
from turret.tower.errors import EncodingError, EngineError
from turret.tower.retrieval.retriever import Retriever


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


def open_live(root: Path, version: str, number: int = 0, manifest: str | None = None) -> LoadedModel:
    """Load a version, whose manifest has to have the SHA-256 `manifest`, if given.

    Checks everything but the checksums of files that are unchanged since their last verification. Raises
    BundleError if it can't be served.
    """
    bundle = load(root, version, trust_note=True, content=manifest)
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
