"""A new version of a bundle with another index, published beside the old one."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from turret.data.manifest import hash_file
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import RecordedQuery, check_golden, load_golden, record, replay, save_golden
from turret.tower.bundle.publish import query_vectors
from turret.tower.errors import BundleError
from turret.tower.format.listing import atomic_folder, check_version
from turret.tower.format.manifest import INDEX, Manifest, write_manifest
from turret.tower.tuning.choice import Chosen, IndexRequest, choose
from turret.tower.tuning.recall import check_recall

GOLDEN = "golden.json"
# Files that are written anew; the others are copied.
_NEW = frozenset({INDEX, GOLDEN})


def reindex(
    folder: Path,
    request: IndexRequest,
    version: str | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> Path:
    """Publish the bundle in `folder` once more, beside it, with the index that `request` describes.

    Unchanged files are copied, not linked: damage to one version must not reach the other. The
    recorded queries are answered anew by the new index. `version` is by default the old one
    with the kind behind it. Nothing moves the `current` pointer.

    Raises BundleError when the bundle fails a check, the version exists, or the index misses the recall.
    """
    old = Bundle.open(folder)
    check_golden(old)
    if version is not None:
        new_target(folder.parent, version)
    scoring = old.manifest.scoring
    chosen = choose(old.vectors, query_vectors(old), scoring, request, report)
    kind = chosen.settings.kind
    check_recall(chosen.recall, request.recall, kind)
    target = new_target(folder.parent, version or derived_version(old.manifest.version, kind))
    publish_chosen(old, chosen, target)
    return target


def publish_chosen(old: Bundle, chosen: Chosen, target: Path) -> None:
    """Publish a bundle once more, as `target`, with a chosen index. Raises BundleError as `reindex`."""
    with atomic_folder(target) as written:
        _write(written, old, chosen, target.name)
        check_golden(Bundle.open(written))


def derived_version(version: str, kind: str) -> str:
    """The name of a version with another index where none was given."""
    return f"{version[: 63 - len(kind)]}-{kind}"


def new_target(root: Path, version: str) -> Path:
    """The folder of a new version in `root`. Raises BundleError where it exists or can't have this name."""
    check_version(version)
    target = root / version
    if target.exists():
        raise BundleError(f"{target} exists, and a published bundle is never changed; name another --version")
    return target


def _write(folder: Path, old: Bundle, chosen: Chosen, version: str) -> None:
    for name in set(old.manifest.files) - _NEW:
        shutil.copyfile(old.folder / name, folder / name)
    chosen.made.save(folder / INDEX)
    manifest = _manifest(old, chosen, version)
    _record_answers(folder, old, manifest)
    files = {path.name: hash_file(path) for path in sorted(folder.iterdir())}
    write_manifest(folder, manifest.model_copy(update={"files": files}))


def _record_answers(folder: Path, old: Bundle, manifest: Manifest) -> None:
    """Answer the recorded queries with the new index."""
    golden = load_golden(old.folder / GOLDEN)
    bundle = Bundle(folder, manifest)
    fields = [query.model_dump(exclude={"items", "scores"}) for query in golden.queries]
    queries = [RecordedQuery.model_validate(query) for query in fields]
    save_golden(folder / GOLDEN, record(bundle, queries, replay(bundle, queries, golden.k), golden.k))


def _manifest(bundle: Bundle, chosen: Chosen, version: str) -> Manifest:
    """The old one's, with the new index, its recall and the reasons for it."""
    old = bundle.manifest
    changes = {
        "version": version,
        "created": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "exported": old.exported or old.created,
        "index": chosen.settings,
        "index_choice": chosen.choice,
        "recall": chosen.recall,
        "fingerprints": {**old.fingerprints, "reindexed": old.version},
        "files": {},
    }
    return old.model_copy(update=changes)
