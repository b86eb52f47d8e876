"""Refuses kinds of events that a version doesn't have."""

from collections.abc import Iterable

from turret.service.errors import InvalidFieldError
from turret.service.schemas.fields import KindedIds
from turret.service.schemas.requests import RecommendRequest
from turret.tower.format.manifest import Manifest


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
