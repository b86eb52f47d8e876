"""What a retraining decides: warm or anew, activation, canary, and what the service refuses."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.turret.conftest import record
from turret.activation.non_inferiority import Comparison
from turret.client import AnswerError, ClientError
from turret.client.version_answers import ActivateAnswer, OutcomesAnswer, RoutesAnswer, RouteShare
from turret.data.errors import DataError
from turret.retraining import deployment
from turret.retraining.deployment import deploy, end_canary, judge_canary, waiting_canary
from turret.retraining.outcome import judge_outcome
from turret.retraining.settings import RetrainSettings
from turret.retraining.state import EndedCanary, Retraining, append_record, choose_mode


@pytest.mark.parametrize(
    ("change", "mode", "reason"),
    [
        ({}, "warm", "2 warm starts and 10.0% new events"),
        ({"new_events": 0.2, "new_items": 0.2}, "warm", "2 warm starts and 20.0% new events"),
        ({"live": None}, "anew", "no version is live"),
        ({"data_changed": True}, "anew", "another command has changed the prepared data"),
        ({"warm_starts": 5}, "anew", "5 warm starts since the last full training"),
        ({"new_events": 0.21}, "anew", "21.0% of the events are newer than the last full training"),
        ({"new_items": 0.3}, "anew", "30.0% of the items are newer than the last full training"),
        ({"asked": "warm", "warm_starts": 99}, "warm", "--mode warm"),
        ({"asked": "warm", "live": None}, "anew", "no version is live"),
        ({"asked": "anew"}, "anew", "--mode anew"),
    ],
)
def test_a_limit_that_is_exceeded_leads_to_a_training_anew_unless_a_mode_is_asked_for(
    change: dict[str, Any], mode: str, reason: str
) -> None:
    usual = {"asked": "rule", "live": "v1", "warm_starts": 2, "new_events": 0.1, "new_items": 0.05}
    given = {"data_changed": False, **usual, **change}
    settings = RetrainSettings(mode=given["asked"], anew_share=0.2, warm_starts=5)
    state = record("r", live=given["live"], data_changed=given["data_changed"])
    shares = given["new_events"], given["new_items"]
    chosen, told = choose_mode(settings, state, given["warm_starts"], *shares)
    assert chosen == mode
    assert told.startswith(reason)


TRIED = RouteShare(version="try", share=0.25)
SETTINGS = RetrainSettings(url="http://admin", canary=0.25, margin=0.1)


class Service:
    """A client of a service with the live version `old`, which answers the admin calls from memory."""

    def __init__(self) -> None:
        self.live: str | None = "old"
        self.canary: RouteShare | None = None
        self.calls: list[str] = []
        self.error: Exception | None = None
        self.answer: OutcomesAnswer | None = None
        self.asked: tuple[Any, ...] = ()

    def outcomes(self, kinds: list[str], within: str, value: str | None) -> OutcomesAnswer:
        self.asked = (kinds, within, value)
        assert self.answer is not None
        return self.answer

    def routes(self) -> RoutesAnswer:
        return RoutesAnswer(live=self.live, canary=self.canary, shadow=None)

    def set_routes(self, canary: Any) -> None:
        self.calls.append("route")
        self.canary = None if canary is None else RouteShare(**canary)

    def activate(self, version: str, force: bool, compared: bool) -> ActivateAnswer:
        assert compared, "the commands before have compared it"
        self.calls.append("activate")
        if self.error:
            raise self.error
        if self.canary and self.canary.version == version:
            self.canary = None
        self.live, before = version, self.live
        return ActivateAnswer(version=version, previous=before)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service()
    monkeypatch.setattr("turret.activation.live.admin_client", lambda *_: nullcontext(made))
    return made


def deployed() -> Retraining:
    state = record("new", decision=None, step="deploy")
    deploy(SETTINGS, state)
    return state


def test_a_good_version_becomes_the_canary_once(service: Service) -> None:
    first = deployed()
    assert (first.decision, first.status) == ("canary", 0)
    assert first.message.endswith("new is the canary for 25.0% of the users; the next run decides on it.")
    deployed()
    assert (service.live, service.canary) == ("old", RouteShare(version="new", share=0.25))
    assert service.calls == ["route"]


def test_a_first_version_needs_no_canary_and_a_live_one_no_activation(service: Service) -> None:
    service.live = None
    for _ in range(2):
        assert deployed().decision == "activated"
        assert [service.live, *service.calls] == ["new", "activate"]


def test_a_conflict_is_a_refusal_and_an_unreachable_service_is_an_error(service: Service) -> None:
    service.live, service.error = None, AnswerError("the gate refuses", 409)
    refused = deployed()
    assert (refused.decision, refused.status, refused.message) == ("refused", 1, "the gate refuses")
    for service.error in (AnswerError("busy", 503), ClientError("no service")):
        with pytest.raises(ClientError):
            deployed()


@pytest.mark.parametrize(
    ("metric", "error", "decision", "live", "message"),
    [
        (0.2, None, "promoted", "try", "try is not worse than old"),
        (0.1, None, "ended", "old", "try is worse than old"),
        (0.2, AnswerError("the gate refuses", 409), "ended", "old", "the gate refuses"),
    ],
)
def test_a_canary_is_promoted_unless_it_is_worse_or_the_gate_refuses_it(
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    metric: float,
    error: Exception | None,
    decision: str,
    live: str,
    message: str,
) -> None:
    loss = metric - 0.2
    figures = Comparison(("try", "old"), "ndcg@10", 0.1, 100, "after a day", metric, 0.2, loss, loss)
    monkeypatch.setattr(deployment, "_compared", lambda *_: figures)
    service.canary, service.error = TRIED, error
    ended = judge_canary(SETTINGS, "try")
    assert ended is not None
    assert [ended.decision, service.live, service.canary] == [decision, live, None]
    assert ended.message.startswith(message)
    assert ended.figures == figures
    if decision == "promoted":
        again = judge_canary(SETTINGS, "try")
        assert again == EndedCanary(version="try", decision="promoted", message="It is live already.")


def test_a_canary_stays_without_events_to_judge_it(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.canary = TRIED

    def refuse(*words: object) -> Comparison:
        raise DataError("no event")

    monkeypatch.setattr(deployment, "_compared", refuse)
    assert judge_canary(SETTINGS, "try") is None
    assert service.canary == TRIED


def test_a_canary_that_somebody_has_ended_is_only_recorded(service: Service) -> None:
    service.canary = RouteShare(version="other", share=0.25)
    ended = judge_canary(SETTINGS, "try")
    assert ended is not None
    assert (ended.decision, service.calls) == ("ended", [])
    assert judge_canary(SETTINGS, None) is None


BY_OUTCOME = replace(SETTINGS, promote_on_outcome="buy", outcome_within="1h", outcome_value="price")


def outcomes(lift: float | None, decided: bool, *, canary: str = "try", live: str = "old") -> OutcomesAnswer:
    """The answer of a service; the sentence of a real one is tested where it is made."""
    users = {"users": 9, "users_with_outcome": 9, "value_a_user": 1.0}
    compared = {
        "live": {"version": live, **users},
        "canary": {"version": canary, **users},
        "users_of_both": 0,
        "decided": decided,
        "lift": lift,
        "days": 3.0,
        "sentence": "enough to decide" if decided else "not yet: about 9 more days",
    }
    fields = {"time": "", "age_seconds": 0.0, "kinds": ["buy"], "within": "1h", "value": "price"}
    return OutcomesAnswer.model_validate({**fields, "versions": [], "warnings": [], "comparison": compared})


def judged(service: Service, answer: OutcomesAnswer | None, tmp_path: Path) -> Retraining:
    """A run after one that made `try` the canary."""
    append_record(tmp_path, record("try", decision="canary"))
    service.canary, service.answer = TRIED, answer
    state = record("r", step="outcome", decision=None)
    judge_outcome(replace(BY_OUTCOME, work=tmp_path), state)
    return state


@pytest.mark.parametrize(
    ("lift", "error", "decision", "live", "message"),
    [
        (0.1, None, "promoted", "try", "Enough to decide."),
        (-0.1, None, "ended", "old", "Enough to decide."),
        (0.1, AnswerError("the gate refuses", 409), "ended", "old", "the gate refuses"),
    ],
)
def test_outcomes_promote_a_canary_that_sells_more_and_end_one_that_sells_less(
    service: Service,
    tmp_path: Path,
    lift: float,
    error: Exception | None,
    decision: str,
    live: str,
    message: str,
) -> None:
    """And the run goes on with the live version that it finds then."""
    service.error = error
    state = judged(service, outcomes(lift, True), tmp_path)
    assert state.canary is not None
    assert (state.canary.decision, state.canary.message) == (decision, message)
    assert [service.live, service.canary, state.live] == [live, None, live]
    assert state.decision is None
    assert service.asked == (["buy"], "1h", "price")
    again = record("r", step="outcome", decision=None)  # killed before it was saved
    judge_outcome(replace(BY_OUTCOME, work=tmp_path), again)
    assert again.canary is not None
    assert again.canary.decision == decision


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (outcomes(0.1, False), "not yet: about 9 more days."),
        (outcomes(None, False), "not yet: about 9 more days."),
        (outcomes(0.1, True, canary="before"), "the log has no answers of both versions so far."),
        (outcomes(0.1, True, live="before"), "the log has no answers of both versions so far."),
        (outcomes(0.1, True).model_copy(update={"comparison": None}), "no answers of both versions so far."),
    ],
    ids=["undecided", "too few buyers", "another canary", "another live version", "one route"],
)
def test_a_canary_waits_until_its_outcomes_are_enough(
    service: Service, tmp_path: Path, answer: OutcomesAnswer, words: str
) -> None:
    """With a status of its own; the canary stays."""
    state = judged(service, answer, tmp_path)
    assert (state.decision, state.status, state.canary) == ("waiting", 5, None)
    assert state.message.startswith("The canary try stays, and nothing is trained: not yet: ")
    assert state.message.endswith(words)
    assert (service.live, service.canary, service.calls) == ("old", TRIED, [])


def test_outcomes_decide_on_no_canary_where_none_waits_or_a_person_has_decided(
    service: Service, tmp_path: Path
) -> None:
    state = record("r", step="outcome", decision=None)
    judge_outcome(replace(BY_OUTCOME, work=tmp_path), state)
    assert (state.canary, state.decision) == (None, None)
    append_record(tmp_path, record("try", decision="canary"))
    judge_outcome(replace(SETTINGS, work=tmp_path), state)  # without the option
    assert state.canary is None
    judge_outcome(replace(BY_OUTCOME, work=tmp_path), state)
    assert state.canary == EndedCanary(version="try", decision="ended", message="It is the canary no longer.")
    end_canary(replace(BY_OUTCOME, work=tmp_path), state)  # the step that judges by events
    assert service.calls == []


def test_the_last_canary_waits_until_a_run_has_judged_it() -> None:
    canary = record("r1", decision="canary")
    judged = record("r2", canary=EndedCanary(version="r1", decision="ended", message=""))
    assert waiting_canary([]) is None
    assert waiting_canary([canary, record("r2", decision="nothing_new")]) == "r1"
    assert waiting_canary([canary, judged]) is None
