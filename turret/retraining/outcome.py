"""The decision on a canary by the outcomes of its answers: better, worse, or not yet."""

from turret.activation.live import live_version, read_outcomes, read_routes
from turret.client.version_answers import ComparedOutcomes, OutcomesAnswer
from turret.retraining.deployment import end, ended_by_hand, promote, waiting_canary
from turret.retraining.settings import RetrainSettings
from turret.retraining.state import Retraining, read_records, report

NOT_YET = 5
"""The exit status of a run that waits for the outcomes of its canary."""


def judge_outcome(settings: RetrainSettings, state: Retraining) -> None:
    """Promote a waiting canary that sells more, end one that sells less, and wait if neither is certain.

    While it is not certain, the decision of the run is `waiting`, so that nothing is trained. A canary that
    was promoted or ended by hand is only recorded. Raises AnswerError for a service that can't count, and
    ClientError where it can't be reached.
    """
    kind, canary = settings.promote_on_outcome, waiting_canary(read_records(settings.work))
    if kind is None or settings.url is None or canary is None:
        return
    routes = read_routes(settings.bundles, settings.url)
    state.canary = ended_by_hand(routes, canary)
    if state.canary is None:
        answer = read_outcomes(
            settings.bundles, settings.url, kind, settings.outcome_within, settings.outcome_value
        )
        compared = comparison_of(answer, canary, routes.live)
        if compared is None:
            missing = "not yet: the log has no answers of both versions so far"
            state.decide("waiting", f"{_stays(canary)}: {missing}.", status=NOT_YET)
            return
        if not compared.decided or compared.lift is None:
            state.decide("waiting", f"{_stays(canary)}: {compared.sentence}.", status=NOT_YET)
            return
        act, why = (promote if compared.lift > 0 else end), f"{compared.sentence}."
        state.canary = act(settings, canary, f"{why[0].upper()}{why[1:]}")
    else:
        report(f"The canary {canary} is {state.canary.decision}: {state.canary.message}")
    state.live = live_version(settings.bundles, settings.url)


def comparison_of(answer: OutcomesAnswer, canary: str, live: str | None) -> ComparedOutcomes | None:
    """The comparison of these two versions; None while the log has other ones alone."""
    compared = answer.comparison
    if compared is None or (compared.canary.version, compared.live.version) != (canary, live):
        return None
    return compared


def _stays(canary: str) -> str:
    return f"The canary {canary} stays, and nothing is trained"
