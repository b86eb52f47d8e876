"""Live bundles: what answers a request from its beginning to its end."""

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from service.pace import Pace
from tower.bundle import Bundle, load
from tower.errors import BundleError, EncodingError
from tower.pointer import check_version
from tower.retriever import Retriever


@dataclass(frozen=True)
class Live:
    """One bundle and all that answers from it; whoever holds it answers from that version to the end.

    `generation` is the number of the activation that made it live, 0 for what routes lead to. `pace` is
    what its answers take in this process.
    """

    bundle: Bundle
    retriever: Retriever
    since: datetime
    generation: int = 0
    pace: Pace = field(default_factory=Pace, compare=False)

    @property
    def version(self) -> str:
        """The bundle's version."""
        return self.bundle.manifest.version


def open_live(root: Path, version: str, generation: int = 0, is_checked: bool = False) -> Live:
    """Open a version to answer from; `is_checked` says that it has just passed the gate.

    Otherwise all is checked but checksums of files that were not touched since they were compared. Raises
    BundleError when it can't be served.
    """
    bundle = _open_checked(root, version) if is_checked else load(root, version, trust_note=True)
    live = Live(bundle, Retriever(bundle), datetime.now(UTC), generation)
    _answer_once(live)
    return live


def _answer_once(live: Live) -> None:
    """Have made by whoever opens a version what its first answer would else make others wait for."""
    rows = np.arange(min(len(live.bundle.vocabulary), 10))
    with suppress(EncodingError):  # of this history, not of others
        live.bundle.vocabulary.known_rows(live.bundle.vocabulary.ids(rows))
        live.retriever.recommend([rows], [{}], len(rows), [rows])
        live.bundle.encoder.encode_each([rows] * 2, [{}] * 2)


def _open_checked(root: Path, version: str) -> Bundle:
    check_version(version)
    bundle = Bundle.open(root / version, verify=False)
    if bundle.manifest.version != version:
        raise BundleError(f"{root / version} holds version {bundle.manifest.version!r}; rename it to that")
    return bundle
