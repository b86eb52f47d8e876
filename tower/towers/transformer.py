"""A causal transformer over the history: SASRec (Kang & McAuley 2018), pre-norm and gated."""

import math
from dataclasses import replace
from typing import Annotated, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from turret.data.features.columns import Features
from turret.tower.config import Rate, Width
from turret.tower.kernels.elementwise import Dropout, gather_rows
from turret.tower.layers.attention import AttentionPooling
from turret.tower.layers.packed import PackedHistories, SegmentLayout, lay_out, step_at
from turret.tower.times import UNKNOWN, WEEK
from turret.tower.towers.user import (
    Context,
    Inputs,
    SegmentLength,
    TimeInputs,
    UserTower,
    UserTowerSettings,
    joined,
)

# There is a knot at each power of two, from a second to 34 years.
KNOTS = 31
# Clocks have this many cycles a week: one of the week itself, and seven of the day.
CLOCKS = (1.0, 7.0)
# The share of histories whose times training hides.
UNKNOWN_SHARE = 0.1
# The steps of the moving mean, and the scale of the first factors of what differs from it.
FILTERED, FILTER_SCALE = 5, 0.1


class TimeLayer(nn.Module):
    """A vector for each step, from the gap to the next event and from the clock of that event.

    It interpolates linearly between knots in log2(1 + gap): the logarithmic buckets of HSTU (Zhai et al.
    2024) without their jumps. A linear layer of sine and cosine of the time of day and of week is added. One
    vector stands for unknown times. All weights begin at zero, as if no times were read.
    """

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(KNOTS + 2 * len(CLOCKS) + 1, dimension))
        self.knots: Tensor
        self.turns: Tensor
        self.register_buffer("knots", torch.arange(KNOTS).float(), persistent=False)
        self.register_buffer("turns", torch.tensor(CLOCKS) * (2 * math.pi / WEEK), persistent=False)

    def forward(self, gaps: Tensor, clocks: Tensor) -> Tensor:
        """The vectors [..., D] of gaps and clocks [...] in seconds, as `tower.times.time_inputs` gives them.

        A negative gap marks unknown times.
        """
        is_known = (gaps >= 0).to(gaps.dtype).unsqueeze(-1)
        position = (1.0 + gaps.clamp(0.0, 2.0 ** (KNOTS - 1))).log2().unsqueeze(-1)
        buckets = (1.0 - (position - self.knots).abs()).clamp(min=0.0)
        angles = clocks.unsqueeze(-1) * self.turns
        read = torch.cat([buckets, angles.sin(), angles.cos()], dim=-1) * is_known
        added: Tensor = torch.cat([read, 1.0 - is_known], dim=-1) @ self.weight
        return added


def hidden_times(count: int) -> Tensor:
    """Draw the histories whose times training hides: bool [count]."""
    # The draw is on the CPU for every device, so that seeding torch's generator reproduces it.
    return torch.rand(count) < UNKNOWN_SHARE


Count = Annotated[int, Field(strict=True, ge=1, le=64)]


class TransformerUserConfig(UserTowerSettings):
    """A causal transformer over the history (SASRec, Kang & McAuley 2018), pre-norm and gated.

    `feed_forward` is the width of the gated layer. `times` reads the times of items and of the request.
    `filter_share` is the share of a moving mean in each attention layer (`MovingMean`).
    """

    kind: Literal["transformer"]
    history_length: SegmentLength = 200
    blocks: Count = 2
    heads: Count = 2
    feed_forward: Width = 128
    times: bool = False
    filter_share: Rate = 0.0
    dropout: Rate = 0.2

    @property
    def context(self) -> Context:
        """Segments: one pass over a segment serves all of its examples."""
        return "causal_segment"

    @property
    def reads_times(self) -> bool:
        """Whether `times` is set."""
        return self.times

    def check_dimension(self, dimension: int) -> None:
        """Raise ValueError unless the heads can share the dimension."""
        if dimension % self.heads:
            raise ValueError(
                f"tower.dimension = {dimension} can't be shared by user.heads = {self.heads}; use a multiple "
                f"of {self.heads}"
            )


class MovingMean(nn.Module):
    """A filter of steps: the mean of the last five, and a learned factor of what differs from it.

    Attention of few steps learns noise; the mean is what neighbours share (BSARec, Shin et al. 2024, eqs. 6
    to 8, whose Fourier filter reads later steps too). With x at a step and its mean m, the output is
    m + b^2 * (x - m), b of a column.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rest = nn.Parameter(FILTER_SCALE * torch.randn(width))

    def forward(self, steps: Tensor, last: Tensor | None = None) -> Tensor:
        """The filtered steps of [B, T, D]: all [B, T, D], or those in `last` [B] alone: [B, 1, D]."""
        numbers = torch.arange(steps.shape[1], device=steps.device)
        ends = numbers.unsqueeze(1) if last is None else last.reshape(-1, 1, 1)
        read = (numbers > ends - FILTERED).to(steps.dtype) - (numbers > ends).to(steps.dtype)
        mean = (read / read.sum(dim=-1, keepdim=True)) @ steps
        filtered = steps if last is None else step_at(steps, last).unsqueeze(1)
        return mean + self.rest.square() * (filtered - mean)


class CausalAttention(nn.Module):
    """Attention of every step to itself and the earlier steps of its segment (Vaswani et al. 2017).

    With `filter_share` s, the output is (1 - s) of that and s of the filtered steps.
    """

    def __init__(self, width: int, config: TransformerUserConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.inputs = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.share = config.filter_share
        self.filter = MovingMean(width) if self.share else None

    def forward(self, slots: Tensor, layout: SegmentLayout) -> Tensor:
        """The attention of the steps in all slots of all segments: [P', D] to [P', D]."""
        outputs = []
        for projected in layout.groups(self.inputs(slots)):
            query, key, value = self._heads(projected)
            # Padding comes last, so that causality alone keeps it out of the steps that are read.
            mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
            outputs.append(mixed.transpose(1, 2).flatten(2).flatten(0, 1))
        attended: Tensor = self.output(torch.cat(outputs))
        if self.filter is None:
            return attended
        filtered = torch.cat([self.filter(steps).flatten(0, 1) for steps in layout.groups(slots)])
        return torch.lerp(attended.to(filtered.dtype), filtered, self.share)  # autocast computes one of them

    def at(self, history: Tensor, last: Tensor) -> Tensor:
        """The attention of step `last` [B] of padded steps [B, T, D]: [B, D]."""
        query, key, value = self._heads(self.inputs(history))
        row = last.reshape(-1, 1, 1, 1)
        queries = query.gather(2, row.expand(-1, self.heads, 1, query.shape[3]))
        attended: Tensor = self.output(self._mixed(queries, key, value, row).flatten(1))
        if self.filter is None:
            return attended
        return torch.lerp(attended, self.filter(history, last).squeeze(1), self.share)

    def everywhere(self, history: Tensor) -> Tensor:
        """The attention of every padded step [B, T, D]: [B, T, D]."""
        query, key, value = self._heads(self.inputs(history))
        steps = torch.arange(history.shape[1], device=history.device)
        mixed = self._mixed(query, key, value, steps.unsqueeze(1))
        attended: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return attended if self.filter is None else torch.lerp(attended, self.filter(history), self.share)

    def _mixed(self, query: Tensor, key: Tensor, value: Tensor, until: Tensor) -> Tensor:
        """Attend from queries [B, H, Q, d] to the steps up to `until`, of T: [B, H, Q, d]."""
        scores = query @ key.transpose(2, 3) / query.shape[3] ** 0.5
        later = torch.arange(key.shape[2], device=key.device) > until
        mixed: Tensor = scores.masked_fill(later, -torch.inf).softmax(dim=3) @ value
        return mixed

    def _heads(self, projected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The queries, keys and values [B, H, T, D / H] of projected steps [B, T, 3 D]."""
        split = projected.reshape(*projected.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = split.unbind()
        return query, key, value


class GatedFeedForward(nn.Module):
    """Two linear layers with a gate between them (SwiGLU, Shazeer 2020, eq. 6)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(width, 2 * hidden, bias=False)
        self.output = nn.Linear(hidden, width, bias=False)

    def forward(self, steps: Tensor) -> Tensor:
        """The output for steps [..., D]: [..., D]."""
        gate, content = self.inputs(steps).chunk(2, dim=-1)
        result: Tensor = self.output(nn.functional.silu(gate) * content)
        return result


class Block(nn.Module):
    """Attention and feed-forward, each on the normalised steps and added to them (Xiong et al. 2020)."""

    def __init__(self, width: int, config: TransformerUserConfig) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(width)
        self.attention = CausalAttention(width, config)
        self.before_feed_forward = nn.LayerNorm(width)
        self.feed_forward = GatedFeedForward(width, config.feed_forward)
        self.dropout = Dropout(config.dropout)

    def forward(self, slots: Tensor, layout: SegmentLayout) -> Tensor:
        """The output of the steps in all slots: [P', D] to [P', D]."""
        attended = self.attention(self.before_attention(slots), layout)
        return self._fed(slots + self.dropout(attended))

    def everywhere(self, history: Tensor) -> Tensor:
        """The output of every padded step [B, T, D]: [B, T, D]."""
        return self._fed(history + self.attention.everywhere(self.before_attention(history)))

    def at(self, history: Tensor, last: Tensor) -> Tensor:
        """The output of step `last` [B] of padded steps [B, T, D]: [B, D]."""
        attended = self.attention.at(self.before_attention(history), last)
        return self._fed(step_at(history, last) + attended)

    def _fed(self, steps: Tensor) -> Tensor:
        fed: Tensor = steps + self.dropout(self.feed_forward(self.before_feed_forward(steps)))
        return fed


class TransformerUserTower(UserTower):
    """The state of the newest step after all blocks, with the user's features, as a user vector.

    Positions count from the oldest item of the window. Examples of a batch whose windows begin at the same
    position share one segment, which passes the blocks once. With `times` each step reads the gap to the next
    event and the time of that event, which it predicts. With `interests` = I, I means of the steps by
    attention are each added to the newest one.
    """

    settings, reader, gives_interests = TransformerUserConfig, "output", True

    def __init__(self, config: TransformerUserConfig, dimension: int, prepared: Features) -> None:
        super().__init__(config, dimension, prepared)
        self.positions = nn.Embedding(config.history_length, dimension)
        nn.init.normal_(self.positions.weight, std=dimension**-0.5)
        self.blocks = nn.ModuleList(Block(dimension, config) for _ in range(config.blocks))
        self.times = TimeLayer(dimension) if config.times else None
        self.dropout = Dropout(config.dropout)
        count = config.interests
        self.pooling = AttentionPooling(dimension, dimension, count) if count > 1 else None
        self.last = nn.LayerNorm(dimension)
        self.output: nn.Module = (
            nn.Linear(dimension + self.feature_width, dimension) if self.rows else nn.Identity()
        )

    def forward(self, histories: PackedHistories, vectors: Tensor) -> Tensor:
        """Run each segment through the blocks once, and take each example's step where its window ends."""
        layout = lay_out(histories.starts, histories.ends)
        steps = [self.positions.weight[:length].repeat(count, 1) for count, length in layout.shapes]
        slots = gather_rows(vectors, layout.positions) + torch.cat(steps)
        if self.times is not None:
            slots = slots + self.times(*self._times(histories, layout))
        slots = self.dropout(slots)
        for block in self.blocks:
            slots = block(slots, layout)
        newest = gather_rows(slots, layout.reads)
        if self.pooling is not None:
            begins = layout.reads + 1 - (histories.ends - histories.starts)
            windows = replace(histories, starts=begins, ends=layout.reads + 1)
            newest = newest.unsqueeze(1) + self.pooling.packed(slots, windows)
        return self._vectors(newest, self.rows(histories.users) if self.rows else None)

    def served(self, history: Tensor, length: Tensor, features: Inputs, times: TimeInputs = ()) -> Tensor:
        """User vectors from the newest step. Without interests it alone passes the last block."""
        last = length - 1
        if self.times is not None:
            history = history + self.times(*(times or [torch.full_like(history[..., 0], UNKNOWN)] * 2))
        history = history + self.positions.weight[: history.shape[1]]
        *before, newest = cast(list[Block], list(self.blocks))
        for block in before:
            history = block.everywhere(history)
        if self.pooling is None:
            steps = newest.at(history, last)
        else:
            history = newest.everywhere(history)
            steps = step_at(history, last).unsqueeze(1) + self.pooling.padded(history, length)
        return self._vectors(steps, self.served_features(features))

    def _times(self, histories: PackedHistories, layout: SegmentLayout) -> tuple[Tensor, Tensor]:
        """Gaps and clocks of all slots, [P'] each; training hides the times of some histories."""
        if histories.gaps is None or histories.clocks is None:
            unknown = torch.full(layout.positions.shape, UNKNOWN, device=layout.positions.device)
            return unknown, unknown
        gaps, clocks = histories.gaps[layout.positions], histories.clocks[layout.positions]
        if self.training:
            hidden = hidden_times(sum(count for count, _ in layout.shapes)).to(gaps.device)
            gaps = gaps.masked_fill(layout.spread(hidden), UNKNOWN)
        return gaps, clocks

    def _vectors(self, steps: Tensor, features: Tensor | None) -> Tensor:
        vectors: Tensor = self.output(joined(self.last(steps), features))
        return vectors
