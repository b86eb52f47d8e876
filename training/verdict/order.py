"""How well the order of events predicts the next item, against shuffled histories."""

from dataclasses import dataclass

import numpy as np

from turret.data.prepared import PreparedData
from turret.training.randomness import stream

# So many users and the newest events of each are read; from so many occurrences on, a ratio is no chance.
_USERS, _EVENTS, LEAST_OCCURRENCES = 20_000, 100, 100
# From this ratio on, the order predicts the next item.
ORDERED_RATIO = 1.5


@dataclass(frozen=True)
class Order:
    """How many times as often as in shuffled histories something occurs; None where it is too rare to tell.

    Attributes:
        pairs: two pairs of successive events are of the same two different items.
        again: an event is of the same item as the event before it.
        again_share: the share of events that are of the same item as the event before.
    """

    pairs: float | None
    again: float | None = None
    again_share: float = 0.0

    @property
    def ratio(self) -> float | None:
        """The mean factor by which the order changes the probability of the next item; None if unknown."""
        # Coincidences estimate this mean for pairs; for `again`, the other events are as likely as before.
        again = 1.0 if self.again is None else 1.0 + self.again_share * (self.again - 1.0)
        if self.pairs is None:
            return again if again >= ORDERED_RATIO else None
        return max(self.pairs, again)

    @property
    def clause(self) -> str:
        """The ratios in words."""
        parts = [] if self.pairs is None else [f"pairs of successive items recur {self.pairs:.1f} times"]
        if self.again is not None:
            parts.append(f"users take their last item again ({self.again_share:.0%}) {self.again:.1f} times")
        return f"{' and '.join(parts)} as often as in shuffled histories"


def order_of(data: PreparedData, repeats: bool) -> Order:
    """Measure the order in the training part, of at most 20,000 users, drawn once.

    With `repeats` the newest 100 events of each user are read; else only the first event of each item, as
    items that the user has used are masked.
    """
    (pairs, again, count), (by_chance, again_by_chance, _) = (
        _occurrences(data, repeats, shuffle) for shuffle in (False, True)
    )
    return Order(_ratio(pairs, by_chance), _ratio(again, again_by_chance), again / max(count, 1))


def _ratio(actual: int, by_chance: int) -> float | None:
    return None if max(actual, by_chance) < LEAST_OCCURRENCES else actual / max(by_chance, 1)


def _occurrences(data: PreparedData, repeats: bool, shuffle: bool) -> tuple[int, int, int]:
    """Count coincidences of pairs of two items, pairs of one item, and all pairs; histories may be shuffled.

    A pair that occurs n times counts n (n - 1) / 2.
    """
    starts, ends = (np.asarray(bound) for bound in data.bounds("train"))
    random = stream(0, "recurrences", 0)
    pairs = [np.empty(0, dtype=np.int64)]
    for user in random.permutation(len(starts))[:_USERS].tolist():
        items = np.asarray(data.event_items[starts[user] : ends[user]], dtype=np.int64)
        items = items[-_EVENTS:] if repeats else items[np.sort(np.unique(items, return_index=True)[1])]
        items = random.permutation(items) if shuffle else items
        pairs.append(items[:-1] * len(data.item_ids) + items[1:])
    distinct, counts = np.unique(np.concatenate(pairs), return_counts=True)
    is_again = distinct // len(data.item_ids) == distinct % len(data.item_ids)
    others = counts[~is_again]
    return int((others * (others - 1) // 2).sum()), int(counts[is_again].sum()), int(counts.sum())
