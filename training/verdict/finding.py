"""A finding, and the findings of a report as text."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from turret.data.text import paragraph

Kind = Literal[
    "baseline",
    "baseline_limits",
    "baseline_left_out",
    "too_small",
    "cold_targets",
    "repeat_targets",
    "still_improving",
    "unfinished",
    "unread_features",
    "unread_order",
    "repeats",
]


@dataclass(frozen=True)
class Statement:
    """A sentence, and the figures that it was made from, by name."""

    kind: str
    sentence: str
    figures: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """`{kind, sentence, figures}`."""
        return asdict(self)


@dataclass(frozen=True)
class Finding(Statement):
    """A statement of the verdict."""

    kind: Kind


def paragraphs(report: dict[str, Any]) -> str:
    """The sentences of the verdict of a report, one a paragraph."""
    lines = (paragraph(finding["sentence"], "- ", "  ") for finding in report["verdict"])
    return "\n".join(["verdict", *lines])


def listing(names: list[str]) -> str:
    """Names in a sentence: "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
