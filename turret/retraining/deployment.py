"""The end of a retraining: the new version goes live or becomes the canary, and old ones are deleted."""

import shutil
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from turret.activation.live import activate_version, live_version, read_routes, set_canary
from turret.activation.non_inferiority import Comparison, UnclearError, WorseError, compare_versions
from turret.client import AnswerError
from turret.client.version_answers import RoutesAnswer, RouteShare
from turret.data.errors import DataError, TurretError
from turret.data.files import sweep
from turret.data.prepared import PreparedData
from turret.retraining.settings import RetrainSettings
from turret.retraining.state import Decision, EndedCanary, Retraining, read_records, report
from turret.service.versions.folder import activation_lock, kept_record
from turret.service.versions.gate_report import FOLDER as GATE
from turret.tower.errors import BundleError
from turret.tower.format.listing import current

_CONFLICT = 409
_RETIRED = ".retired-"


def compare(settings: RetrainSettings, state: Retraining) -> None:
    """Compare the new version with the live one; the decision is set if the new one may not go live.

    Raises DataError where no event can tell the versions apart.
    """
    version = state.version or state.run
    live = live_version(settings.bundles, settings.url)
    if live is None or live == version:
        state.message = f"no version was live before {version}"
        return
    state.live, state.figures = live, _compared(settings, version, live)
    state.decision, state.message, state.status = _judged(state.figures)
    report(state.message)


def _compared(settings: RetrainSettings, version: str, live: str) -> Comparison:
    data = PreparedData.open(settings.data)
    return compare_versions(settings.bundles, version, live, data, settings.metric, settings.margin)


def _judged(comparison: Comparison) -> tuple[Decision | None, str, int]:
    """The decision against a version with its message and exit status; no decision for a good one."""
    try:
        return None, comparison.check(), 0
    except (WorseError, UnclearError) as error:
        return "refused" if isinstance(error, WorseError) else "unclear", str(error), error.exit_status


def deploy(settings: RetrainSettings, state: Retraining) -> None:
    """Activate the new version, or route users to it as the canary; the same call again changes nothing.

    A version that fails the gate is refused. Raises ClientError where the service can't be reached.
    """
    version, url, share = state.version or state.run, settings.url, settings.canary
    live = live_version(settings.bundles, url)
    decision: Decision = "activated"
    try:
        if url is not None and share is not None and live is not None and live != version:
            decision = "canary"
            if read_routes(settings.bundles, url).canary != RouteShare(version=version, share=share):
                set_canary(settings.bundles, url, version, share)
            judge = "outcomes decide" if settings.promote_on_outcome else "the next run decides"
            said = f"{version} is the canary for {share:.1%} of the users; {judge} on it."
        elif url is not None and live == version:  # a running service logs each activation
            said = f"{url} serves {version} now."
        else:  # a first version is current since its export and is checked here
            said = activate_version(version, settings.bundles, url, compared=True)
    except (BundleError, AnswerError) as error:
        if isinstance(error, AnswerError) and error.status != _CONFLICT:
            raise
        state.decide("refused", str(error), status=1)
    else:
        state.decide(decision, f"{state.message}; {said}")


def end_canary(settings: RetrainSettings, state: Retraining) -> None:
    """Judge the canary of an earlier run on the new events, if one waits and outcomes do not decide."""
    if settings.promote_on_outcome is not None:
        return
    ended = judge_canary(settings, waiting_canary(read_records(settings.work)))
    if ended is not None:
        state.canary, state.live = ended, live_version(settings.bundles, settings.url)


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
    if (by_hand := ended_by_hand(routes, canary)) is not None or routes.live is None:
        return by_hand
    try:
        comparison = _compared(settings, canary, routes.live)
    except DataError as error:
        report(f"The canary {canary} stays: {error}")
        return None
    decision, message, _ = _judged(comparison)
    act = end if decision == "refused" else promote
    return act(settings, canary, message, comparison)


def ended_by_hand(routes: RoutesAnswer, canary: str) -> EndedCanary | None:
    """The record of a canary that somebody has promoted or ended; None for one that is the canary still."""
    if routes.live == canary:
        return EndedCanary(version=canary, decision="promoted", message="It is live already.")
    if routes.live is None or routes.canary is None or routes.canary.version != canary:
        return EndedCanary(version=canary, decision="ended", message="It is the canary no longer.")
    return None


def promote(
    settings: RetrainSettings, canary: str, message: str, figures: Comparison | None = None
) -> EndedCanary:
    """Activate a canary for the reason `message`, or end it if the gate refuses it."""
    try:
        said = activate_version(canary, settings.bundles, settings.url, compared=True)
    except AnswerError as error:
        if error.status != _CONFLICT:
            raise
        return end(settings, canary, str(error), figures)
    report(f"The canary {canary} is promoted: {message} {said}")
    return EndedCanary(version=canary, decision="promoted", message=message, figures=figures)


def end(
    settings: RetrainSettings, canary: str, message: str, figures: Comparison | None = None
) -> EndedCanary:
    """Give the users of a canary back to the live version, for the reason `message`."""
    assert settings.url is not None, "a canary is of a service"
    set_canary(settings.bundles, settings.url, None)
    report(f"The canary {canary} is ended: {message}")
    return EndedCanary(version=canary, decision="ended", message=message, figures=figures)


# ---- Retention


def retire(settings: RetrainSettings, state: Retraining) -> None:
    """Delete old runs and their bundles."""
    state.deleted = delete_old(settings, (*read_records(settings.work), state))


def protected_versions(bundles: Path, url: str | None, records: Sequence[Retraining]) -> set[str]:
    """The live and the previous version, the canary and the shadow.

    A service without `url` may not have followed the pointer, so the live version of the folder's record
    counts, too. Raises TurretError where one of them can't be determined.
    """
    kept = kept_record(bundles)
    known = [activation.version for activation in (kept.live, *kept.before)] if kept else []
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
    """Delete all but the newest runs of `turret retrain`, with their bundles; return the deleted names.

    Protected versions and bundles that other commands have published stay. A bundle leaves the listing by one
    rename, with activations locked out. An error is only reported: the next run tries again.
    """
    runs = sorted({record.run for record in records if record.mode is not None}, reverse=True)
    old = {run: {run} for run in runs[settings.keep :]}
    for record in records:
        if record.run in old and record.version:  # the bundle with another index
            old[record.run].add(record.version)
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


def _is_left(settings: RetrainSettings, run: str, names: set[str]) -> bool:
    return (settings.runs / run).is_dir() or any((settings.bundles / name).is_dir() for name in names)


def _hide(bundles: Path, version: str) -> None:
    with suppress(FileNotFoundError):
        (bundles / version).rename(bundles / f"{_RETIRED}{version}-{uuid.uuid4().hex}")
        (bundles / GATE / f"{version}.json").unlink()
