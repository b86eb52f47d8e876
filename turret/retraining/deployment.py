"""The comparison of a new version with the live one, and its way to the users."""

from collections.abc import Sequence

from turret.activation.not_worse import Comparison, UnclearError, WorseError, compare_versions
from turret.data.errors import DataError
from turret.data.prepared import PreparedData
from turret.retraining.progress import report
from turret.retraining.record import Decision, EndedCanary, Figures, RetrainRecord
from turret.retraining.settings import RetrainSettings
from turret.retraining.state import RunState
from turret.service.client import activate_version, live_version, read_routes, set_routes
from turret.service.errors import AnswerError
from turret.tower.errors import BundleError

REFUSED = 1
_CONFLICT = 409


def compare(settings: RetrainSettings, state: RunState) -> RunState:
    """Compare the new version with the live one; the decision is set if it may not go live.

    Raises DataError where no event can judge them.
    """
    version = state.version or state.run
    live = live_version(settings.bundles, settings.url)
    if live is None or live == version:
        return state.model_copy(update={"message": f"no version was live before {version}"})
    comparison = _compared(settings, version, live)
    state = state.model_copy(update={"live": live, "figures": figures_of(comparison)})
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


def figures_of(comparison: Comparison) -> Figures:
    """The figures of a comparison for the record."""
    return Figures(
        metric=comparison.metric,
        users=len(comparison.held_out.users),
        new=comparison.new,
        live=comparison.live,
        low=comparison.low,
        high=comparison.high,
        margin=comparison.margin,
        rule=comparison.held_out.rule,
    )


def deploy(settings: RetrainSettings, state: RunState) -> RunState:
    """Activate the new version, or route users to it as the canary; the same call again changes nothing.

    A version that fails the gate is refused. Raises ServiceError where the service can't be reached.
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
    canary = {"version": version, "share": settings.canary}
    if read_routes(settings.bundles, settings.url or "").get("canary") != canary:
        set_routes(settings.bundles, settings.url or "", {"canary": canary})
    return f"{version} is the canary for {settings.canary:.1%} of the users; the next run decides on it."


def _is_refusal(error: BundleError | AnswerError) -> bool:
    return isinstance(error, BundleError) or error.status == _CONFLICT


def waiting_canary(records: Sequence[RetrainRecord]) -> str | None:
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
    if routes["live"] == canary:
        return EndedCanary(version=canary, decision="promoted", message="It is live already.")
    if (routes.get("canary") or {}).get("version") != canary:
        return EndedCanary(version=canary, decision="ended", message="It is the canary no longer.")
    try:
        comparison = _compared(settings, canary, routes["live"])
    except DataError as error:
        report(f"The canary {canary} stays: {error}")
        return None
    figures = figures_of(comparison)
    decision, message, _ = _judged(comparison)
    if decision != "refused":
        try:
            said = activate_version(canary, settings.bundles, settings.url)
            report(f"The canary {canary} is promoted: {message} {said}")
            return EndedCanary(version=canary, decision="promoted", message=message, figures=figures)
        except AnswerError as error:
            if not _is_refusal(error):
                raise
            message = str(error)
    set_routes(settings.bundles, settings.url, {"canary": None})
    report(f"The canary {canary} is ended: {message}")
    return EndedCanary(version=canary, decision="ended", message=message, figures=figures)
