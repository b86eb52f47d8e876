"""The rule that chooses between a warm start from the live version and a training anew."""

from dataclasses import dataclass
from typing import Literal

from turret.data.progress import counted

Mode = Literal["warm", "anew"]
AskedMode = Literal["rule", "warm", "anew"]


@dataclass(frozen=True)
class RuleSettings:
    """The limits of warm starts.

    `share`: train anew when more than this share of the events or of the items is newer than the last full
    training. `most_warm_starts`: train anew after so many warm starts in a row. `asked` overrides the rule.
    """

    share: float = 0.3
    most_warm_starts: int = 7
    asked: AskedMode = "rule"


@dataclass(frozen=True)
class Situation:
    """The state that the rule looks at.

    `data_changed`: another command has written the prepared data since the last training. `warm_starts`: the
    number of them between the last full training and the live version. `new_events` and `new_items`: the
    shares of the data that are newer than that full training.
    """

    has_live: bool
    data_changed: bool
    warm_starts: int
    new_events: float
    new_items: float


def choose_mode(situation: Situation, settings: RuleSettings) -> tuple[Mode, str]:
    """Choose the mode of a training, with the reason as a clause; without a live version, it is anew."""
    if not situation.has_live:
        return "anew", "no version is live"
    if settings.asked != "rule":
        return settings.asked, f"--mode {settings.asked}"
    if situation.data_changed:
        return "anew", "another command has changed the prepared data since the last training"
    if situation.warm_starts >= settings.most_warm_starts:
        return "anew", f"{counted(situation.warm_starts, 'warm start')} since the last full training"
    for name, share in (("events", situation.new_events), ("items", situation.new_items)):
        if share > settings.share:
            return (
                "anew",
                f"{share:.1%} of the {name} are newer than the last full training, and the limit is "
                f"{settings.share:.1%}",
            )
    return (
        "warm",
        f"{counted(situation.warm_starts, 'warm start')} and {situation.new_events:.1%} new events since the "
        "last full training are within the limits",
    )
