"""The end of a retraining: the new version goes live or becomes the canary, and old ones are deleted."""

import shutil
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from turret.activation.live import activate_version, live_version, read_routes, set_canary
from turret.activation.not_worse import Comparison, UnclearError, WorseError, compare_versions
from turret.client import AnswerError
from turret.client.answers import RouteShare
from turret.data.errors import DataError, TurretError
from turret.data.files import sweep
from turret.data.prepared import PreparedData
from turret.retraining.record import Decision, EndedCanary, Retraining, read_records, report
from turret.retraining.settings import RetrainSettings
from turret.service.versions.folder import activation_lock, kept_record
from turret.service.versions.gate import FOLDER as GATE
from turret.tower.engines.collections import drop_unneeded
from turret.tower.errors import BundleError
from turret.tower.format.index_settings import EngineSettings
from turret.tower.format.listing import current
from turret.tower.format.manifest import read_manifest

REFUSED = 1
_CONFLICT = 409


def compare(settings: RetrainSettings, state: Retraining) -> Retraining:
    """Compare the new version with the live one; the decision is set if it may not go live.

    Raises DataError where no event can judge them.
    """
    version = state.version or state.run
    live = live_version(settings.bundles, settings.url)
    if live is None or live == version:
        return state.model_copy(update={"message": f"no version was live before {version}"})
    comparison = _compared(settings, version, live)
    state = state.model_copy(update={"live": live, "figures": comparison})
    decision, message, status = _judged(comparison)
    report(message)
    return state.model_copy(update={"decision": decision, "message": message, "status": status})


def _compared(settings: RetrainSettings, version: str, live: str) -> Comparison:
    data = PreparedData.open(settings.data)
    return compare_versions(settings.bundles, version, live, data, settings.metric, settings.margin)


def _judged(comparison: Comparison) -> tuple[Decision | None, str, int]:
    """The decision against a version with its message and exit status; no decision for a good one."""
    try:
        return None, comparison.check(), 0
    except WorseError as error:
        return "refused", str(error), error.exit_status
    except UnclearError as error:
        return "unclear", str(error), error.exit_status


def deploy(settings: RetrainSettings, state: Retraining) -> Retraining:
    """Activate the new version, or route users to it as the canary; the same call again changes nothing.

    A version that fails the gate is refused. Raises ClientError where the service can't be reached.
    """
    version = state.version or state.run
    live = live_version(settings.bundles, settings.url)
    is_canary = settings.canary is not None and live is not None and live != version
    try:
        said = _make_canary(settings, version) if is_canary else _activate(settings, version)
    except (BundleError, AnswerError) as error:
        if not _is_refusal(error):
            raise
        return state.model_copy(update={"decision": "refused", "message": str(error), "status": REFUSED})
    decision: Decision = "canary" if is_canary else "activated"
    return state.model_copy(update={"decision": decision, "message": f"{state.message}; {said}"})


def _activate(settings: RetrainSettings, version: str) -> str:
    # A running service logs each activation; a first version is current since its export and is checked here.
    if settings.url is not None and live_version(settings.bundles, settings.url) == version:
        return f"{settings.url} serves {version} now."
    return activate_version(version, settings.bundles, settings.url)


def _make_canary(settings: RetrainSettings, version: str) -> str:
    url, share = settings.url or "", settings.canary or 0.0
    if read_routes(settings.bundles, url).canary != RouteShare(version=version, share=share):
        set_canary(settings.bundles, url, version, share)
    return f"{version} is the canary for {settings.canary:.1%} of the users; the next run decides on it."


def _is_refusal(error: BundleError | AnswerError) -> bool:
    return isinstance(error, BundleError) or error.status == _CONFLICT


def waiting_canary(records: Sequence[Retraining]) -> str | None:
    """The version that an earlier run made the canary and that no later run has judged."""
    judged = {record.canary.version for record in records if record.canary}
    versions = [record.version for record in records if record.decision == "canary"]
    return versions[-1] if versions and versions[-1] not in judged else None


def judge_canary(settings: RetrainSettings, canary: str | None) -> EndedCanary | None:
    """Promote the canary of an earlier run, or end it if it is worse on the events since; None for neither.

    A canary that was ended or promoted by hand is only recorded. Without events that can judge it, it stays.
    """
    if canary is None or settings.url is None:
        return None
    routes = read_routes(settings.bundles, settings.url)
    if routes.live == canary:
        return EndedCanary(version=canary, decision="promoted", message="It is live already.")
    if routes.live is None or routes.canary is None or routes.canary.version != canary:
        return EndedCanary(version=canary, decision="ended", message="It is the canary no longer.")
    try:
        comparison = _compared(settings, canary, routes.live)
    except DataError as error:
        report(f"The canary {canary} stays: {error}")
        return None
    decision, message, _ = _judged(comparison)
    if decision != "refused":
        try:
            said = activate_version(canary, settings.bundles, settings.url)
            report(f"The canary {canary} is promoted: {message} {said}")
            return EndedCanary(version=canary, decision="promoted", message=message, figures=comparison)
        except AnswerError as error:
            if not _is_refusal(error):
                raise
            message = str(error)
    set_canary(settings.bundles, settings.url, None)
    report(f"The canary {canary} is ended: {message}")
    return EndedCanary(version=canary, decision="ended", message=message, figures=comparison)


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


def choose_retired(settings: RetrainSettings, records: Sequence[Retraining]) -> tuple[str, ...]:
    """The runs that retention deletes with their bundles; none while the protected ones are unknown.

    Only runs of `turret retrain` count; bundles that other commands have published stay.
    """
    runs = sorted({record.run for record in records if record.mode is not None}, reverse=True)
    try:
        protected = protected_versions(settings.bundles, settings.url, records)
    except TurretError as error:
        report(f"nothing is deleted: {error}")
        return ()
    return tuple(
        run
        for run in runs[settings.keep :]
        if not protected & bundle_names(run, records) and is_left(settings, run, records)
    )


def retire(settings: RetrainSettings, state: Retraining) -> Retraining:
    """Delete old runs and their bundles. An error costs no decision: the next run tries again."""
    records = (*read_records(settings.work), state)
    runs = choose_retired(settings, records)
    try:
        delete_retired(settings, runs, records)
    except (TurretError, OSError) as error:
        report(f"old runs can't be deleted: {error}")
    gone = {
        name for run in runs if not is_left(settings, run, records) for name in bundle_names(run, records)
    }
    return state.model_copy(update={"deleted": tuple(sorted(gone))})


def delete_retired(settings: RetrainSettings, runs: Sequence[str], records: Sequence[Retraining]) -> None:
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


def bundle_names(run: str, records: Sequence[Retraining]) -> set[str]:
    """The bundle of a run, and the one with another index."""
    return {run} | {record.version for record in records if record.run == run and record.version}


def is_left(settings: RetrainSettings, run: str, records: Sequence[Retraining]) -> bool:
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
