"""Retention: the newest bundles and runs of retrainings stay, and every version that a service may need."""

import shutil
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from turret.data.errors import TurretError
from turret.data.files import sweep
from turret.retraining.progress import report
from turret.retraining.record import RetrainRecord
from turret.retraining.settings import RetrainSettings
from turret.service.client import read_routes
from turret.service.versions.folder import activation_lock, kept_record
from turret.service.versions.gate import FOLDER as GATE
from turret.tower.engines.collections import drop_unneeded
from turret.tower.errors import BundleError
from turret.tower.format.engine_settings import EngineSettings
from turret.tower.format.listing import current
from turret.tower.format.manifest import read_manifest

_RETIRED = ".retired-"


def protected_versions(bundles: Path, url: str | None, records: Sequence[RetrainRecord]) -> set[str]:
    """The live and the previous version, the canary and the shadow.

    A service without `url` may not have followed the pointer, so the live version of the folder's record
    counts, too. Raises TurretError where one of them can't be determined.
    """
    kept = kept_record(bundles)
    known = [one.version for one in (kept.live, *kept.before)] if kept else []
    lives = [current(bundles), *known[:1]]
    named = [route.version for route in (kept.routes.canary, kept.routes.shadow) if route] if kept else []
    if url is not None:
        answered = read_routes(bundles, url)
        lives.append(answered["live"])
        named += [answered[kind]["version"] for kind in ("canary", "shadow") if answered.get(kind)]
    previous = [next((version for version in known if version != live), None) for live in lives]
    previous += [record.live for record in records if record.version in lives]
    return {version for version in (*lives, *named, *previous) if version is not None}


def retired(newest_first: Sequence[str], protected: Iterable[str], keep: int) -> tuple[str, ...]:
    """The names beyond the newest `keep` that are not protected."""
    return tuple(name for name in newest_first[keep:] if name not in set(protected))


def choose_retired(settings: RetrainSettings, records: Sequence[RetrainRecord]) -> tuple[str, ...]:
    """The runs that retention deletes with their bundles; none while the protected ones are unknown.

    Only runs of `turret retrain` count; bundles that other commands have published stay.
    """
    runs = sorted({record.run for record in records if record.mode is not None}, reverse=True)
    try:
        protected = protected_versions(settings.bundles, settings.url, records)
    except TurretError as error:
        report(f"nothing is deleted: {error}")
        return ()
    kept = {run for run in runs if protected & bundle_names(run, records)}
    return tuple(run for run in retired(runs, kept, settings.keep) if is_left(settings, run, records))


def delete_retired(settings: RetrainSettings, runs: Sequence[str], records: Sequence[RetrainRecord]) -> None:
    """Delete the bundles and folders of runs; versions that have become protected since stay.

    A bundle leaves the listing by one rename, with activations locked out. Raises TurretError, OSError.
    """
    if not runs:
        return
    engines: set[str] = set()
    with activation_lock(settings.bundles):
        protected = protected_versions(settings.bundles, settings.url, records)
        for run in runs:
            for version in bundle_names(run, records) - protected:
                engines |= _engine_of(settings.bundles / version)
                _hide(settings.bundles, version)
    sweep(settings.bundles, f"{_RETIRED}*", 0.0)
    for url in engines:
        _drop_collections(settings.bundles, url)
    for run in runs:
        shutil.rmtree(settings.runs / run, ignore_errors=True)


def bundle_names(run: str, records: Sequence[RetrainRecord]) -> set[str]:
    """The bundle of a run, and the one with another index."""
    return {run} | {record.version for record in records if record.run == run and record.version}


def is_left(settings: RetrainSettings, run: str, records: Sequence[RetrainRecord]) -> bool:
    """Whether anything of a run is left."""
    bundles = (settings.bundles / name for name in bundle_names(run, records))
    return (settings.runs / run).is_dir() or any(folder.is_dir() for folder in bundles)


def _engine_of(folder: Path) -> set[str]:
    """The address of the vector engine of a version, if it has one."""
    with suppress(BundleError):
        index = read_manifest(folder).index
        return {index.url} if isinstance(index, EngineSettings) else set()
    return set()


def _drop_collections(bundles: Path, url: str) -> None:
    try:
        for name in drop_unneeded(bundles, url):
            report(f"dropped the collection {name} from {url}")
    except TurretError as error:
        report(f"collections of deleted versions stay in {url}: {error}")


def _hide(bundles: Path, version: str) -> None:
    with suppress(FileNotFoundError):
        (bundles / version).rename(bundles / f"{_RETIRED}{version}-{uuid.uuid4().hex}")
        (bundles / GATE / f"{version}.json").unlink()
