"""The halves of an answer, and the names of a metric in each."""

from collections.abc import Mapping

from turret.tower.repeats import Slot

SLOTS: tuple[Slot, ...] = ("again", "new")
"""The halves of an answer: items that the user had used, and others."""


def slot_metric(slot: Slot, metric: str) -> str:
    """The name of a metric of the targets of a slot, ranked among its items: "new ndcg@10"."""
    return metric if slot == "all" else f"{slot} {metric}"


def with_slots(means: Mapping[str, float], metric: str) -> str:
    """The value of a metric, with its values in the measured slots: "0.4100 (again 0.7700, new 0.1500)"."""
    slots = [f"{slot} {means[name]:.4f}" for slot in SLOTS if (name := slot_metric(slot, metric)) in means]
    return f"{means[metric]:.4f}" + (f" ({', '.join(slots)})" if slots else "")
