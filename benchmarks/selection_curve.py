"""How good the model is that validation selects, over the seconds of training."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

TARGET = 0.30


@dataclass(frozen=True)
class Point:
    """HR@10 after so many epochs and seconds of training, and the test HR@10 of the selected model.

    `test` is None where the epoch's own was not asked for, as another one is the selected.
    """

    epoch: int
    seconds: float
    validation: float
    test: float | None
    selected: float


def curve(epoch: Callable[[], dict[str, Any]], limit: float, target: float = TARGET) -> Iterator[Point]:
    """Train epoch by epoch, until the selected model gets to `target` or `limit` seconds are spent.

    `epoch` trains one, and gives its seconds, and HR@10 as validation and test.
    """
    number, seconds, best, selected = 0, 0.0, -1.0, 0.0
    while seconds < limit and selected < target:
        done = epoch()
        number, seconds = number + 1, seconds + done["seconds"]
        if done["validation"] > best:
            best, selected = done["validation"], done["test"]
        yield Point(number, seconds, done["validation"], done["test"], selected)


def outcome(points: list[Point], target: float = TARGET) -> dict[str, Any]:
    """The curve, and the seconds to the target, or None where it was not reached."""
    reached = bool(points) and points[-1].selected >= target
    return {
        "seconds": points[-1].seconds if reached else None,
        "hr@10": points[-1].selected if points else None,
        "curve": [asdict(point) for point in points],
    }
