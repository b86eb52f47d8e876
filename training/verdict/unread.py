"""Features and order in the data that an experiment does not read, and the shipped ones that do."""

from collections.abc import Callable, Mapping

import numpy as np

from turret.data.manifest import FeatureSummary
from turret.data.prepared import PreparedData
from turret.tower.config import FeatureNames
from turret.training.config.experiment import ExperimentConfig, load_experiment, shipped_experiments
from turret.training.randomness import stream
from turret.training.verdict.finding import Finding, listing

# Users whose successive items are counted; the ratio and the count from which on they are no chance.
_USERS, ORDERED_RATIO, LEAST_RECURRENCES = 20_000, 1.5, 100


def unread_features(
    experiment: ExperimentConfig, data: PreparedData, rejected: Mapping[str, float] | None = None
) -> Finding | None:
    """Features of items and users that the towers leave unread.

    `rejected` has the validation values of the candidates to which `--experiment auto` preferred this one.
    """
    items = _unread(experiment.tower.item.features, data.manifest.item_features)
    users = _unread(experiment.tower.user.features, data.manifest.user_features)
    readers = _shipped(
        lambda other: (
            (not items or other.tower.item.features == "all")
            and (not users or other.tower.user.features == "all")
        )
    )
    if not (items or users) or not readers:
        return None
    parts = [
        f"{kind} have {'the feature' if len(names) == 1 else f'{len(names)} features'} ({listing(names)})"
        for kind, names in (("items", items), ("users", users))
        if names
    ]
    it = "it" if len(items) + len(users) == 1 else "them"
    sentence = f"This experiment leaves features unread: {' and '.join(parts)}; " + (
        _preferred(rejected) if rejected else f"the shipped experiment {listing(readers)} reads {it}."
    )
    figures = {"item_features": items, "user_features": users, "experiments": readers}
    return Finding("unread_features", sentence, figures)


def _preferred(rejected: Mapping[str, float]) -> str:
    values = [f"{name} ({value:.4f})" for name, value in rejected.items()]
    return f"`--experiment auto` preferred it to {listing(values)} by their validation metric in trials."


def _unread(chosen: FeatureNames, features: list[FeatureSummary]) -> list[str]:
    return [] if chosen == "all" else [one.name for one in features if one.name not in chosen]


def unread_order(
    experiment: ExperimentConfig, data: PreparedData, rejected: Mapping[str, float] | None = None
) -> Finding | None:
    """An order of events that predicts the next item, which the user tower reads as a set.

    `rejected` has the validation values of the candidates to which `--experiment auto` preferred this one.
    """
    readers = _shipped(_reads_order)
    if _reads_order(experiment) or data.manifest.time.kind == "position" or not readers:
        return None
    actual, shuffled = recurrences(data, False), recurrences(data, True)
    if actual < LEAST_RECURRENCES or actual < ORDERED_RATIO * shuffled:
        return None
    ratio = actual / max(shuffled, 1)
    is_window = experiment.tower.user.context == "causal_window"
    read = "reads little of that order" if is_window else "does not read that order"
    sentence = (
        f"The order of the events predicts the next item (pairs of successive items recur {ratio:.1f} times "
        f"as often as in shuffled histories), and this experiment {read}; "
        + (_preferred(rejected) if rejected else f"the shipped experiments {listing(readers)} read it.")
    )
    figures = {"recurrences": actual, "shuffled": shuffled, "ratio": ratio, "experiments": readers}
    return Finding("unread_order", sentence, figures)


def recurrences(data: PreparedData, shuffle: bool) -> int:
    """The number of coincidences of pairs of successive distinct items in the training part.

    A pair that n users have in succession counts n (n - 1) / 2. At most 20,000 users, drawn once, are read,
    with the first event of each of their items; `shuffle` permutes these.
    """
    starts, ends = (np.asarray(bound) for bound in data.bounds("train"))
    random = stream(0, "recurrences", 0)
    pairs = [np.empty(0, dtype=np.int64)]
    for user in random.permutation(len(starts))[:_USERS].tolist():
        events = np.asarray(data.event_items[starts[user] : ends[user]], dtype=np.int64)
        items = events[np.sort(np.unique(events, return_index=True)[1])]
        items = random.permutation(items) if shuffle else items
        pairs.append(items[:-1] * len(data.item_ids) + items[1:])
    counts = np.unique(np.concatenate(pairs), return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


def _reads_order(experiment: ExperimentConfig) -> bool:
    return experiment.tower.user.context == "causal_segment"


def _shipped(reads: Callable[[ExperimentConfig], bool]) -> list[str]:
    return [name for name in shipped_experiments() if reads(load_experiment(name))]
