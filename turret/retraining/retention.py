"""Old versions and runs of retrainings are deleted, but none that a service may need."""

import shutil
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from turret.activation.live import read_routes
from turret.data.errors import TurretError
from turret.data.files import sweep
from turret.retraining.state import Retraining, RetrainSettings, report
from turret.service.versions.folder import activation_lock, kept_record
from turret.service.versions.gate import FOLDER as GATE
from turret.tower.format.listing import current

_RETIRED = ".retired-"


def protected_versions(bundles: Path, url: str | None, records: Sequence[Retraining]) -> set[str]:
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
        lives.append(answered.live)
        named += [route.version for route in (answered.canary, answered.shadow) if route]
    previous = [next((version for version in known if version != live), None) for live in lives]
    previous += [record.live for record in records if record.version in lives]
    return {version for version in (*lives, *named, *previous) if version is not None}


def delete_old(settings: RetrainSettings, records: Sequence[Retraining]) -> tuple[str, ...]:
    """Delete all but the newest runs of `turret retrain`, with their bundles; return the names of those gone.

    Protected versions and bundles that other commands have published stay. A bundle leaves the listing by one
    rename, with activations locked out. An error is reported and costs no decision: the next run tries again.
    """
    runs = sorted({record.run for record in records if record.mode is not None}, reverse=True)
    old = {run: _bundle_names(run, records) for run in runs[settings.keep :]}
    old = {run: names for run, names in old.items() if _is_left(settings, run, names)}
    try:
        if old:
            with activation_lock(settings.bundles):
                protected = protected_versions(settings.bundles, settings.url, records)
                old = {run: names for run, names in old.items() if not protected & names}
                for version in set().union(*old.values()):
                    _hide(settings.bundles, version)
        sweep(settings.bundles, f"{_RETIRED}*", 0.0)
        for run in old:
            shutil.rmtree(settings.runs / run, ignore_errors=True)
    except (TurretError, OSError) as error:
        report(f"old runs can't be deleted: {error}")
    gone = [names for run, names in old.items() if not _is_left(settings, run, names)]
    return tuple(sorted(set().union(*gone)))


def _bundle_names(run: str, records: Sequence[Retraining]) -> set[str]:
    """The bundle of a run, and the one with another index."""
    return {run} | {record.version for record in records if record.run == run and record.version}


def _is_left(settings: RetrainSettings, run: str, names: set[str]) -> bool:
    return (settings.runs / run).is_dir() or any((settings.bundles / name).is_dir() for name in names)


def _hide(bundles: Path, version: str) -> None:
    with suppress(FileNotFoundError):
        (bundles / version).rename(bundles / f"{_RETIRED}{version}-{uuid.uuid4().hex}")
        (bundles / GATE / f"{version}.json").unlink()
