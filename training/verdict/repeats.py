"""The share of repeated events, against the setting that masks them."""

from itertools import pairwise
from typing import Any

import numpy as np

from turret.data.prepared import PreparedData
from turret.data.ranges import groups, ranges
from turret.training.verdict.finding import Finding

MANY, FEW = 0.05, 0.01
_EVENTS_A_BLOCK = 2**22


def repeat_share(data: PreparedData) -> float:
    """The share of all events whose user has an earlier event of the same item.

    It is that of the manifest; data of earlier releases is read.
    """
    if data.manifest.repeat_share is not None:
        return data.manifest.repeat_share
    distinct, lengths = 0, np.diff(data.offsets)
    bounds = groups(data.offsets, _EVENTS_A_BLOCK)
    for first, last in pairwise(bounds.tolist()):
        owners = np.repeat(np.arange(last - first), lengths[first:last])
        items = data.event_items[ranges(np.asarray(data.offsets[first:last]), lengths[first:last])]
        distinct += len(np.unique(owners * len(data.item_ids) + items))
    return 1.0 - distinct / len(data.event_items)


def repeats(report: dict[str, Any], data: PreparedData) -> Finding | None:
    """Many repeats that are masked, or hardly any and no mask."""
    share, masked = repeat_share(data), report["exclude_seen"]
    figures = {"share": share, "exclude_seen": masked, "targets_masked": report["relevant_used_before"]}
    if masked and share >= MANY:
        sentence = (
            f"{share:.0%} of the events repeat an item of their user, and evaluation.exclude_seen = true "
            f"masks those items: {report['relevant_used_before']:,} of {report['relevant_items']:,} targets "
            "can't be hit. If users come back for the same items, set it to false."
        )
        return Finding("repeats", sentence, figures)
    if not masked and share < FEW:
        sentence = (
            f"Only {share:.1%} of the events repeat an item of their user, but evaluation.exclude_seen = "
            "false ranks items that were used before; set it to true."
        )
        return Finding("repeats", sentence, figures)
    return None
