"""Baskets: the sessions of prepared data in place of its users, as examples without an order."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.data.features.columns import Features
from turret.data.manifest import Counts
from turret.data.prepared import PreparedData
from turret.data.ranges import stable_order
from turret.data.vocabulary import Vocabulary
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import TrainingError
from turret.training.randomness import stream

_SETTING = "training.examples = 'sessions'"


def examples_of(experiment: ExperimentConfig, data: PreparedData) -> PreparedData:
    """The data as this experiment reads it: histories of users, or baskets. Raises as `baskets_of`."""
    return baskets_of(data) if experiment.training.examples == "sessions" else data


def baskets_of(data: PreparedData) -> PreparedData:
    """The baskets of two or more items in place of the users: the distinct items of each session.

    In data with kinds, a basket holds the items of target kinds, such as those that were bought. A basket
    belongs to the part of its latest event. Training reads all items of its baskets; of each later basket,
    one item is the target, drawn by chance but always the same, and the others are the history
    (leave-one-out).

    Raises:
        TrainingError: the data has no sessions, is split within sessions, or has no such basket for training.
    """
    if data.holds_baskets:
        return data
    if data.sessions is None:
        raise TrainingError(
            f"{_SETTING} learns which items are in one session or order, and {data.folder} names none; "
            "prepare the data with --session and the column of sessions or of order numbers."
        )
    if data.manifest.split.kind == "last":
        raise TrainingError(
            f"{_SETTING} holds out whole sessions, and {data.folder} is split at each user's last events; "
            "prepare the data with --split time."
        )
    positions, baskets, parts = _items_of_baskets(data)
    sizes = np.bincount(baskets, minlength=len(parts))
    if not (sizes[parts == 0] > 1).any():
        raise TrainingError(
            f"{data.folder}: no session of the training part has two different items, so there is nothing to "
            "predict; name another column with --session, or train an experiment on histories, such as "
            "youtubednn."
        )
    positions, sizes, parts = positions[(sizes > 1)[baskets]], sizes[sizes > 1], parts[sizes > 1]
    ends = np.cumsum(sizes)
    _put_last(positions, ends - sizes, ends, parts)
    user_count = len(sizes)
    optional: dict[str, Any] = {
        name: None if (values := getattr(data, name)) is None else values[positions]
        for name in ("weights", "kinds", "places", "propensities")
    }
    counts = Counts(events=len(positions), users=user_count, items=len(data.item_ids))
    updates = {"counts": counts, "user_features": [], "negatives": None}
    return replace(
        data,
        manifest=data.manifest.model_copy(update=updates),
        event_items=data.event_items[positions],
        offsets=np.append(0, ends),
        times=data.times[positions],
        **optional,
        contexts=None if data.contexts is None else data.contexts[positions],
        splits=np.column_stack([ends - (parts > 0), ends - (parts > 1)]),
        train_ends=np.where(parts > 0, ends - sizes, ends),
        users=Vocabulary(range(user_count)),
        user_features=Features(user_count, (), {}),
        negatives=None,
        sessions=None,
    )


def _items_of_baskets(
    data: PreparedData,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The first event of each item of a session that is a target, and the sessions.

    Returns:
        The positions of P events, sorted by session; the number of the session of each; and the part of each
        of S sessions: 0 for training, 1 for validation, 2 for test.
    """
    assert data.sessions is not None
    events = data.only_targets(np.flatnonzero(data.sessions >= 0))
    owners = np.searchsorted(data.offsets, events, side="right") - 1
    order = stable_order([owners, data.sessions[events]])
    events, owners = events[order], owners[order]
    is_new = np.ones(len(events), dtype=np.bool_)
    is_new[1:] = (np.diff(owners) != 0) | (np.diff(data.sessions[events]) != 0)
    baskets = np.cumsum(is_new) - 1
    parts = np.zeros(int(is_new.sum()), dtype=np.int64)
    np.maximum.at(parts, baskets, (events[:, None] >= data.splits[owners]).sum(axis=1))
    keys = baskets * len(data.item_ids) + data.event_items[events]
    firsts = np.sort(np.unique(keys, return_index=True)[1])
    return events[firsts], baskets[firsts], parts


def _put_last(
    positions: NDArray[np.int64], begins: NDArray[np.int64], ends: NDArray[np.int64], parts: NDArray[np.int64]
) -> None:
    """Swap one event of each basket that is held out with its last one, in place, in `positions` [P]."""
    held_out = np.flatnonzero(parts > 0)
    begins, lasts = begins[held_out], ends[held_out] - 1
    drawn = begins + stream(0, "left out of baskets", 0).integers(lasts - begins + 1)
    positions[drawn], positions[lasts] = positions[lasts], positions[drawn]
