"""A new version of a bundle with another index, published beside the old one."""

import os
import shutil
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from data.manifest import hash_file
from tower.bundle import Bundle
from tower.errors import BundleError
from tower.golden import RecordedQuery, check_golden, load_golden, record, replay, save_golden
from tower.index_choice import Asked, Chosen, choose
from tower.indexes.opening import INDEX
from tower.manifest import MANIFEST, Manifest
from tower.pointer import check_version, sync
from tower.query_vectors import query_vectors
from tower.recall import check_recall

GOLDEN = "golden.json"
# What is written anew; all else is the old version's.
_NEW = frozenset({INDEX, GOLDEN, MANIFEST})


def reindex(
    folder: Path,
    asked: Asked,
    version: str | None = None,
    report: Callable[[str], None] = lambda words: None,
) -> Path:
    """Publish the bundle in `folder` once more, beside it, with the index that `asked` describes.

    The files that stay are shared with the old version by hard links where the file system has them. The
    recorded queries are answered anew by the index that will serve them. `version` is by default the old one
    with the kind behind it. Nothing moves the `current` pointer.

    Raises BundleError when the bundle fails a check, the version exists, or the index misses the recall.
    """
    old = Bundle.open(folder)
    check_golden(old)
    if version is not None:
        _target(folder, version)
    scoring = old.manifest.scoring
    chosen = choose(old.vectors, query_vectors(old), scoring, asked, report)
    kind = chosen.settings.kind
    check_recall(chosen.recall, asked.recall, kind)
    target = _target(folder, version or f"{old.manifest.version[: 63 - len(kind)]}-{kind}")
    temporary = folder.parent / f".publishing-{target.name}-{uuid.uuid4().hex}"
    try:
        temporary.mkdir()
        _write(temporary, old, chosen, target.name)
        check_golden(Bundle.open(temporary))
        for path in (*temporary.iterdir(), temporary, folder.parent):
            sync(path)
        temporary.rename(target)
        sync(folder.parent)
    except OSError as error:
        raise BundleError(f"the bundle {target} can't be written: {error}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _target(folder: Path, version: str) -> Path:
    check_version(version)
    target = folder.parent / version
    if target.exists():
        raise BundleError(f"{target} exists, and a published bundle is never changed; name another --version")
    return target


def _write(folder: Path, old: Bundle, chosen: Chosen, version: str) -> None:
    for name in old.manifest.files:
        if name not in _NEW:
            _share(old.folder / name, folder / name)
    chosen.made.save(folder / INDEX)
    manifest = _manifest(old.manifest, chosen, version)
    _record_answers(folder, old, manifest)
    files = {path.name: hash_file(path) for path in sorted(folder.iterdir())}
    whole = manifest.model_copy(update={"files": files})
    (folder / MANIFEST).write_text(whole.model_dump_json(indent=2), encoding="utf-8")
    for name in _NEW:
        os.chmod(folder / name, 0o444)


def _share(source: Path, target: Path) -> None:
    """Link the file, which nobody may write to; copy it where there are no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        os.chmod(target, 0o444)


def _record_answers(folder: Path, old: Bundle, manifest: Manifest) -> None:
    """Answer the recorded queries with the index that will serve them."""
    golden = load_golden(old.folder / GOLDEN)
    bundle = Bundle(folder, manifest)
    asked = [query.model_dump(exclude={"items", "scores"}) for query in golden.queries]
    queries = [RecordedQuery.model_validate(query) for query in asked]
    save_golden(folder / GOLDEN, record(bundle, queries, replay(bundle, queries, golden.k), golden.k))


def _manifest(old: Manifest, chosen: Chosen, version: str) -> Manifest:
    """The old one's, with the new index, its table and the reasons for it."""
    changes = {
        "version": version,
        "created": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "index": chosen.settings,
        "index_choice": chosen.choice,
        "recall": chosen.recall,
        "fingerprints": {**old.fingerprints, "reindexed": old.version},
        "files": {},
    }
    return old.model_copy(update=changes)
