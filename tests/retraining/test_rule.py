from dataclasses import replace

import pytest

from turret.retraining.rule import RuleSettings, Situation, choose_mode

USUAL = Situation(has_live=True, data_changed=False, warm_starts=2, new_events=0.1, new_items=0.05)
RULE = RuleSettings(share=0.2, most_warm_starts=5)


def test_a_few_new_events_are_a_warm_start() -> None:
    choice = choose_mode(USUAL, RULE)
    assert choice.mode == "warm"
    assert choice.reason.startswith("2 warm starts and 10.0% new events")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"has_live": False}, "no version is live"),
        ({"data_changed": True}, "another command has changed the prepared data"),
        ({"warm_starts": 5}, "5 warm starts since the last full training"),
        ({"new_events": 0.21}, "21.0% of the events are newer than the last full training"),
        ({"new_items": 0.3}, "30.0% of the items are newer than the last full training"),
    ],
)
def test_each_limit_leads_to_a_training_anew(change: dict[str, object], reason: str) -> None:
    choice = choose_mode(replace(USUAL, **change), RULE)  # type: ignore[arg-type]
    assert choice.mode == "anew"
    assert choice.reason.startswith(reason)


def test_a_limit_that_is_just_reached_is_not_exceeded() -> None:
    assert choose_mode(replace(USUAL, new_events=0.2, new_items=0.2), RULE).mode == "warm"


def test_a_requested_mode_overrides_the_limits_but_needs_a_live_version() -> None:
    warm = replace(RULE, asked="warm")
    assert choose_mode(replace(USUAL, warm_starts=99), warm).mode == "warm"
    assert choose_mode(replace(USUAL, has_live=False), warm).mode == "anew"
    assert choose_mode(USUAL, replace(RULE, asked="anew")).mode == "anew"
