"""What the kinds of events mean to a version: which it reads, and for how long each leaves out its items."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from turret.data.kinds import Seen, left_out_for, read_kinds
from turret.service.errors import InvalidFieldError
from turret.service.schemas.fields import KindedIds
from turret.service.schemas.requests import RecommendRequest
from turret.tower.format.manifest import Manifest


class CountedKinds:
    """How the kinds of a version count, by code.

    Codes are those of histories (`data.kinds`), then those of the negative kinds, then one for events without
    a kind in a version without a default one, then one for all others: ignored kinds, and those that the
    version doesn't have. `spans` [C] are the milliseconds for which an event leaves out its item, 0 for none,
    inf for ever. `are_read` [C]: whether histories have such events, and `read` [C] as which kind.
    """

    def __init__(self, manifest: Manifest, seen: Seen) -> None:
        table = manifest.kinds
        read = read_kinds(table)
        names = [*read, *(name for name, kind in table.items() if kind.role == "negative")]
        self.spans = np.append(left_out_for(table, seen, names), 0.0)
        self.read = np.arange(len(self.spans))
        self.read[-2] = -1
        self.are_read = self.read < len(read)
        self._codes: dict[str | None, int] = {name: code for code, name in enumerate([*names, None])}
        self._codes[None] = self._code(manifest.default_kind)

    def codes(self, kinds: Sequence[str | None], count: int) -> NDArray[np.int64]:
        """The codes of `count` events; no `kinds` are none of any event."""
        found = map(self._code, kinds) if kinds else [self._codes[None]] * count
        return np.fromiter(found, np.int64, count)

    def _code(self, kind: str | None) -> int:
        return self._codes.get(kind or None, len(self.spans) - 1)


def unknown_kind(field: str, kind: str, manifest: Manifest, known: Iterable[str]) -> InvalidFieldError:
    """The refusal of a kind that is none of the `known` ones of a version."""
    names = ", ".join(known)
    return InvalidFieldError(field, kind, f"version {manifest.version} has no such kind; send one of {names}")


def check_kinds(request: RecommendRequest, manifest: Manifest) -> None:
    """Raise InvalidFieldError for kinds in a request that a version with kinds doesn't have, or ignores."""
    if isinstance(request.history, KindedIds):
        for position, kind in enumerate(request.history.kinds):
            if kind is not None and kind not in manifest.kinds:
                raise unknown_kind(f"history.{position}.kind", kind, manifest, manifest.kinds)
    if isinstance(request.exclude_seen, tuple):
        known = [name for name, kind in manifest.kinds.items() if kind.role != "ignored"]
        for position, kind in enumerate(request.exclude_seen):
            if kind not in known:
                raise unknown_kind(f"exclude_seen.{position}", kind, manifest, known)
