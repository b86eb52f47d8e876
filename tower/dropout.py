"""Dropout whose random bits are made eight at a time."""

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Zeroes each value with about probability `rate`, and scales up the others so that means stay.

    On the CPU a random byte decides on each value, so that the probability is `rate` to the nearest 256th:
    torch makes 64 random bits in the time of one draw, and dropping values took longer than any layer's
    products. Elsewhere it is torch's own.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, values: Tensor) -> Tensor:
        """Values [...] to [...]."""
        if not self.training or not self.rate:
            return values
        if values.device.type != "cpu":
            return nn.functional.dropout(values, self.rate)
        dropped = round(256 * self.rate)
        words = torch.empty(-(-values.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
        kept = words.view(torch.uint8)[: values.numel()].view(values.shape) >= dropped
        return values * kept.to(values.dtype).mul_(256 / (256 - dropped))
