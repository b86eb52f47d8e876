"""Causal attention over packed segments, and over one padded history when served."""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from turret.tower.layers.packed import SegmentLayout


class CausalAttention(nn.Module):
    """Attention of every step to itself and the earlier steps of its segment (Vaswani et al. 2017)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, slots: Tensor, layout: SegmentLayout) -> Tensor:
        """The steps in all slots of all segments: [P', D] to [P', D]."""
        outputs = []
        for projected in layout.groups(self.inputs(slots)):
            query, key, value = self._heads(projected)
            # Padding comes last, so that causality alone keeps it out of the steps that are read.
            mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
            outputs.append(mixed.transpose(1, 2).flatten(2).flatten(0, 1))
        result: Tensor = self.output(torch.cat(outputs))
        return result

    def at(self, history: Tensor, last: Tensor) -> Tensor:
        """The attention of step `last` [B] of padded steps [B, T, D]: [B, D]."""
        query, key, value = self._heads(self.inputs(history))
        positions = last.reshape(-1, 1, 1, 1).expand(-1, self.heads, 1, query.shape[3])
        mixed = self._mixed(query.gather(2, positions), key, value, last.reshape(-1, 1, 1, 1))
        result: Tensor = self.output(mixed.flatten(1))
        return result

    def everywhere(self, history: Tensor) -> Tensor:
        """The attention of each of padded steps [B, T, D]: [B, T, D]."""
        query, key, value = self._heads(self.inputs(history))
        steps = torch.arange(history.shape[1], device=history.device)
        mixed = self._mixed(query, key, value, steps.unsqueeze(1))
        result: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return result

    def _mixed(self, query: Tensor, key: Tensor, value: Tensor, until: Tensor) -> Tensor:
        """Attend from queries [B, H, Q, d] to the steps up to `until`, of T: [B, H, Q, d]."""
        scores = query @ key.transpose(2, 3) / query.shape[3] ** 0.5
        later = torch.arange(key.shape[2], device=key.device) > until
        mixed: Tensor = scores.masked_fill(later, -torch.inf).softmax(dim=3) @ value
        return mixed

    def _heads(self, projected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B, T, 3 D] as queries, keys and values [B, H, T, D / H]."""
        split = projected.reshape(*projected.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = split.unbind()
        return query, key, value
