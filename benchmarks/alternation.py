"""Several sides of a comparison take turns, so that what the machine does meanwhile meets them all."""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# Takes a number of steps; gives how many examples they had, and how many seconds they took.
Side = Callable[[int], tuple[int, float]]


@dataclass(frozen=True)
class Turn:
    """A side with the number of steps that it takes in its turn."""

    run: Side
    steps: int


def alternate(turns: Mapping[str, Turn], rounds: int) -> dict[str, list[float]]:
    """Let every side take a turn in each of `rounds` rounds: its examples/s, round by round.

    A turn before the first round warms each side up and does not count.
    """
    for turn in turns.values():
        turn.run(turn.steps)
    rates: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name, turn in turns.items():
            examples, seconds = turn.run(turn.steps)
            rates[name].append(examples / seconds)
    return rates


def summary(rates: Mapping[str, list[float]]) -> dict[str, dict[str, float]]:
    """The median, the least and the greatest examples/s of each side."""
    return {
        name: {"median": statistics.median(own), "least": min(own), "greatest": max(own)}
        for name, own in rates.items()
    }


def ratio(rates: Mapping[str, list[float]], ours: str, others: list[str]) -> dict[str, Any]:
    """Our median over the best median of the others; and the least and greatest ratio to it of a round."""
    best = max(others, key=lambda name: statistics.median(rates[name]))
    by_round = [own / other for own, other in zip(rates[ours], rates[best], strict=True)]
    return {
        "ratio": statistics.median(rates[ours]) / statistics.median(rates[best]),
        "ratio_least": min(by_round),
        "ratio_greatest": max(by_round),
        "against": best,
    }
