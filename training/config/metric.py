"""The names of the metrics that training, evaluation and activation know."""

from collections.abc import Mapping

from turret.tower.repeats import Slot

AUC = "auc"
SLOTS: tuple[Slot, ...] = ("again", "new")
"""The halves of an answer: items that the user had used, and others."""
METRICS = ("hr", "recall", "ndcg", "mrr", "map")
"""The metrics of a ranking, whose names go on with a cut-off: ndcg@10."""
RANKING_METRIC = rf"(?:{'|'.join(METRICS)})@([1-9][0-9]{{0,3}})"


def slot_metric(slot: Slot, metric: str) -> str:
    """The name of a metric of the targets of a slot, ranked among its items: "new ndcg@10"."""
    return metric if slot == "all" else f"{slot} {metric}"


def with_slots(means: Mapping[str, float], metric: str) -> str:
    """The figure of a metric, with those of the slots there are: "0.4100 (again 0.7700, new 0.1500)"."""
    slots = [f"{slot} {means[name]:.4f}" for slot in SLOTS if (name := slot_metric(slot, metric)) in means]
    return f"{means[metric]:.4f}" + (f" ({', '.join(slots)})" if slots else "")
