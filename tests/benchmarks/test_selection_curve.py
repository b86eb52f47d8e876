from collections.abc import Callable
from typing import Any

from benchmarks.selection_curve import curve, outcome


def epochs(*rates: tuple[float, float]) -> Callable[[], dict[str, Any]]:
    """Epochs of 10 seconds with these HR@10 on validation and test."""
    left = iter(rates)

    def epoch() -> dict[str, Any]:
        validation, test = next(left)
        return {"seconds": 10.0, "validation": validation, "test": test}

    return epoch


def test_the_model_that_counts_is_selected_on_validation() -> None:
    """The second epoch is better on the test, but not on validation: it doesn't count as getting there."""
    points = list(curve(epochs((0.2, 0.1), (0.1, 0.9), (0.3, 0.5), (0.4, 0.9)), limit=1000, target=0.5))
    assert [point.selected for point in points] == [0.1, 0.1, 0.5]
    assert outcome(points, target=0.5)["seconds"] == 30.0


def test_training_ends_when_its_seconds_are_spent() -> None:
    points = list(curve(epochs((0.1, 0.1), (0.2, 0.2), (0.3, 0.3), (0.4, 0.4)), limit=25, target=0.9))
    assert [point.seconds for point in points] == [10.0, 20.0, 30.0]
    ended = outcome(points, target=0.9)
    assert ended["seconds"] is None
    assert ended["hr@10"] == 0.3
    assert [point["epoch"] for point in ended["curve"]] == [1, 2, 3]


def test_without_an_epoch_there_is_no_figure() -> None:
    assert outcome([]) == {"seconds": None, "hr@10": None, "curve": []}
