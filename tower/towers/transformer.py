"""A causal transformer over the history: SASRec (Kang & McAuley 2018), pre-norm and gated."""

import math
from collections.abc import Sequence
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
from turret.tower.layers.pair_bias import PairBias, time_buckets
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
    `attention_bias` adds to the scores of attention by the distance of two steps, by the time from the one to
    the moment in which the other asks, or by both.
    """

    kind: Literal["transformer"]
    history_length: SegmentLength = 200
    blocks: Count = 2
    heads: Count = 2
    feed_forward: Width = 128
    times: bool = False
    attention_bias: Literal["none", "positions", "times", "both"] = "none"
    dropout: Rate = 0.2

    @property
    def context(self) -> Context:
        """Segments: one pass over a segment serves all of its examples."""
        return "causal_segment"

    @property
    def reads_times(self) -> bool:
        """Whether `times` is set, or the bias of attention reads times."""
        return self.times or self.biases_times

    @property
    def needs_timestamps(self) -> str | None:
        """The name of the setting that data without timestamps can't satisfy."""
        return "times" if self.times else "attention_bias" if self.biases_times else None

    @property
    def biases_times(self) -> bool:
        """Whether the bias of attention reads times."""
        return self.attention_bias in ("times", "both")

    def check_dimension(self, dimension: int) -> None:
        """Raise ValueError unless the heads can share the dimension."""
        if dimension % self.heads:
            raise ValueError(
                f"tower.dimension = {dimension} can't be shared by user.heads = {self.heads}; use a multiple "
                f"of {self.heads}"
            )


class CausalAttention(nn.Module):
    """Attention of every step to itself and the earlier steps of its segment (Vaswani et al. 2017)."""

    def __init__(self, width: int, config: TransformerUserConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.bias = (
            PairBias(
                config.heads,
                config.history_length,
                config.attention_bias in ("positions", "both"),
                config.biases_times,
            )
            if config.attention_bias != "none"
            else None
        )
        self.inputs = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, slots: Tensor, layout: SegmentLayout, buckets: Sequence[Tensor | None]) -> Tensor:
        """The attention of the steps in all slots of all segments: [P', D] to [P', D].

        `buckets` are those of `PairBias`, of each group of segments.
        """
        outputs = []
        for projected, of_group in zip(layout.groups(self.inputs(slots)), buckets, strict=True):
            query, key, value = self._heads(projected)
            # Padding comes last, so that causality alone keeps it out of the steps that are read.
            bias = self.bias(projected.shape[1], of_group) if self.bias else None
            mixed = scaled_dot_product_attention(query, key, value, bias, is_causal=bias is None)
            outputs.append(mixed.transpose(1, 2).flatten(2).flatten(0, 1))
        result: Tensor = self.output(torch.cat(outputs))
        return result

    def at(self, history: Tensor, last: Tensor, buckets: Tensor | None) -> Tensor:
        """The attention of step `last` [B] of padded steps [B, T, D]: [B, D]."""
        query, key, value = self._heads(self.inputs(history))
        row = last.reshape(-1, 1, 1, 1)
        bias = None
        if self.bias:
            length = history.shape[1]
            bias = self.bias(length, buckets).expand(len(history), -1, -1, -1)
            bias = bias.gather(2, row.expand(-1, self.heads, 1, length))
        queries = query.gather(2, row.expand(-1, self.heads, 1, query.shape[3]))
        mixed = self._mixed(queries, key, value, row, bias)
        result: Tensor = self.output(mixed.flatten(1))
        return result

    def everywhere(self, history: Tensor, buckets: Tensor | None) -> Tensor:
        """The attention of every padded step [B, T, D]: [B, T, D]."""
        query, key, value = self._heads(self.inputs(history))
        steps = torch.arange(history.shape[1], device=history.device)
        bias = self.bias(history.shape[1], buckets) if self.bias else None
        mixed = self._mixed(query, key, value, steps.unsqueeze(1), bias)
        result: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return result

    def _mixed(self, query: Tensor, key: Tensor, value: Tensor, until: Tensor, bias: Tensor | None) -> Tensor:
        """Attend from queries [B, H, Q, d] to the steps up to `until`, of T: [B, H, Q, d]."""
        scores = query @ key.transpose(2, 3) / query.shape[3] ** 0.5
        if bias is not None:
            scores = scores + bias
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

    def forward(self, slots: Tensor, layout: SegmentLayout, buckets: Sequence[Tensor | None]) -> Tensor:
        """The output of the steps in all slots: [P', D] to [P', D]."""
        attended = self.attention(self.before_attention(slots), layout, buckets)
        return self._fed(slots + self.dropout(attended))

    def everywhere(self, history: Tensor, buckets: Tensor | None) -> Tensor:
        """The output of every padded step [B, T, D]: [B, T, D]."""
        return self._fed(history + self.attention.everywhere(self.before_attention(history), buckets))

    def at(self, history: Tensor, last: Tensor, buckets: Tensor | None) -> Tensor:
        """The output of step `last` [B] of padded steps [B, T, D]: [B, D]."""
        attended = self.attention.at(self.before_attention(history), last, buckets)
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
        self.reads_times, self.biases_times = config.reads_times, config.biases_times
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
        buckets: list[Tensor | None] = [None] * len(layout.shapes)
        if self.reads_times:
            gaps, clocks = self._times(histories, layout)
            if self.times is not None:
                slots = slots + self.times(gaps, clocks)
            if self.biases_times:
                buckets = [time_buckets(of_group) for of_group in layout.groups(gaps)]
        slots = self.dropout(slots)
        for block in self.blocks:
            slots = block(slots, layout, buckets)
        newest = gather_rows(slots, layout.reads)
        if self.pooling is not None:
            begins = layout.reads + 1 - (histories.ends - histories.starts)
            windows = replace(histories, starts=begins, ends=layout.reads + 1)
            newest = newest.unsqueeze(1) + self.pooling.packed(slots, windows)
        return self._vectors(newest, self.rows(histories.users) if self.rows else None)

    def served(self, history: Tensor, length: Tensor, features: Inputs, times: TimeInputs = ()) -> Tensor:
        """User vectors from the newest step. Without interests it alone passes the last block."""
        last, buckets = length - 1, None
        if self.reads_times:
            gaps, clocks = times or [torch.full_like(history[..., 0], UNKNOWN)] * 2
            if self.times is not None:
                history = history + self.times(gaps, clocks)
            if self.biases_times:
                buckets = time_buckets(gaps)
        history = history + self.positions.weight[: history.shape[1]]
        *before, newest = cast(list[Block], list(self.blocks))
        for block in before:
            history = block.everywhere(history, buckets)
        if self.pooling is None:
            steps = newest.at(history, last, buckets)
        else:
            history = newest.everywhere(history, buckets)
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
