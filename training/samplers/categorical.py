"""Draws from a distribution of its own for each example."""

import torch
from torch import Tensor


def draw_by_inversion(log_weights: Tensor, places: Tensor) -> Tensor:
    """The items at `places` [B, K], uniform in [0, 1), of distributions by unnormalised log weights [B, N].

    An item of weight zero is never drawn. Weights are added up in float64: in float32 the sum over a large
    catalogue would swallow the items at its end.

    Returns:
        int64 [B, K].
    """
    log_weights = log_weights.double()
    weights = (log_weights - log_weights.amax(dim=1, keepdim=True)).exp()
    ends = weights.cumsum(dim=1)
    totals = ends[:, -1:]
    # Rounding must not carry a place to the very end, behind the last item that has a weight.
    places = torch.minimum(places * totals, torch.nextafter(totals, torch.zeros_like(totals)))
    return torch.searchsorted(ends, places, right=True).clamp(max=ends.shape[1] - 1)
