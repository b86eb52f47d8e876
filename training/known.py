"""What a user is known to have used, among the candidates of a draw."""

import torch
from torch import Tensor

from tower.gather import ranges
from training.batches import Batch


def known_candidates(batch: Batch, ids: Tensor) -> Tensor:
    """Which candidates the example's user reads or goes on to use within this batch.

    Args:
        batch: the examples; its events are all that is looked at.
        ids: int64 [K], candidates that the batch shares.

    Returns:
        bool [B, K]; the example's own positive is among what is known.
    """
    owners = torch.cat([batch.owners, batch.histories.users])
    rows = torch.cat([batch.histories.rows, batch.targets])
    users, slots = torch.unique(owners, return_inverse=True)
    ordered, places = ids.sort()
    first = torch.searchsorted(ordered, rows)
    counts = torch.searchsorted(ordered, rows, right=True) - first
    # Candidates may repeat: every copy of a row is one place.
    found = places[ranges(first, counts)]
    known = torch.zeros(len(users), len(ids), dtype=torch.bool, device=ids.device)
    known[slots.repeat_interleave(counts), found] = True
    return known[slots[len(batch.owners) :]]
