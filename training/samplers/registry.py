"""The registry of samplers by kind: those of Turret, the entry points `turret.samplers`, and mixed draws."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Annotated, Literal, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor

from turret.data.extras import kind_of, registry
from turret.training.errors import TrainingError
from turret.training.samplers.adaptive.dense import MinedConfig, QuarticConfig, SoftmaxConfig, TwoPassConfig
from turret.training.samplers.adaptive.features import FourierFeaturesConfig, PositiveFeaturesConfig
from turret.training.samplers.adaptive.ngram import AdaptiveNgramConfig, BigramConfig
from turret.training.samplers.core.contract import (
    CountingSampler,
    Draw,
    DrawContext,
    Encode,
    Sampler,
    State,
    part_of,
)
from turret.training.samplers.core.settings import BuildContext, SamplerSettings, one_of
from turret.training.samplers.fixed.popularity import (
    BernoulliConfig,
    ExactHeadConfig,
    LogUniformConfig,
    UniformConfig,
    UnigramConfig,
)
from turret.training.samplers.from_batch.in_batch import CrossBatchConfig, InBatchConfig
from turret.training.samplers.kernel.quadratic import QuadraticConfig

_SINGLE: dict[str, type[SamplerSettings]] = registry(
    (
        UniformConfig,
        LogUniformConfig,
        UnigramConfig,
        BigramConfig,
        AdaptiveNgramConfig,
        BernoulliConfig,
        ExactHeadConfig,
        InBatchConfig,
        CrossBatchConfig,
        MinedConfig,
        QuadraticConfig,
        QuarticConfig,
        SoftmaxConfig,
        PositiveFeaturesConfig,
        FourierFeaturesConfig,
        TwoPassConfig,
    ),
    "turret.samplers",
    SamplerSettings,
    TrainingError,
    kind_of,
)

# The members of the union are known only when Turret runs, so mypy sees their base class.
if TYPE_CHECKING:
    PartConfig = SamplerSettings
else:
    PartConfig = one_of(settings for settings in _SINGLE.values() if settings.mixable)


# In a union, shared candidates come before shared ones with stored vectors, and these before the candidates
# of single examples.
SHARED, STORED, OWN = 0, 1, 2


class MixedSampler(CountingSampler):
    """A union of draws: the candidates of all parts, each expected as often as by all parts together.

    The expected count of an item does not depend on the part that drew it: with B positives and K uniform
    candidates it is B p_i + K / N for all of them. An item that one part can never draw, because it has no
    known frequency or is not mined, has the counts of the other parts.

    Each part draws from its own random stream, so that no part depends on how much the others draw.
    """

    def __init__(self, parts: Sequence[CountingSampler]) -> None:
        self.parts = parts
        # The numbers of candidates of the parts in the last draw; before the first draw, shares are equal.
        self._sizes = [1] * len(parts)
        self.draws_batch = any(part.draws_batch for part in parts)

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw from all parts: [K] ids where all are shared, [B, K] as soon as a part draws by example."""
        streams = context.random.spawn(len(self.parts))
        draws = [
            part.draw(query, positives, replace(context, random=random))
            for part, random in zip(self.parts, streams, strict=True)
        ]
        self._sizes = [draw.ids.shape[-1] for draw in draws]
        counted = [replace(draw, log_count=self.log_expected(query, positives, draw.ids)) for draw in draws]
        of_positives = self.log_expected(query, positives, positives.unsqueeze(1))[:, 0]
        return union(counted, of_positives)

    @property
    def holds_vectors(self) -> bool:
        return any(part.holds_vectors for part in self.parts)

    @property
    def merges(self) -> bool:
        return all(part.merges for part in self.parts)

    def log_expected(self, query: Tensor, positives: Tensor, ids: Tensor) -> Tensor:
        """The log of the parts' added counts of `ids`."""
        return reduce(torch.logaddexp, (part.log_expected(query, positives, ids) for part in self.parts))

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """The parts' proposals, weighted by how many candidates each had in the last draw: [B, N]."""
        shares = [size / max(sum(self._sizes), 1) for size in self._sizes]
        weighted = (
            share * part.probability(query, context) for share, part in zip(shares, self.parts, strict=True)
        )
        return reduce(torch.add, weighted)

    def refresh(self, item_vectors: Tensor) -> None:
        for part in self.parts:
            part.refresh(item_vectors)

    def update(self, encode: Encode) -> None:
        for part in self.parts:
            part.update(encode)

    def state(self) -> State:
        """The parts' states; each name begins with the number of its part."""
        return {
            f"{number}.{name}": tensor
            for number, part in enumerate(self.parts)
            for name, tensor in part.state().items()
        }

    def restore(self, state: State) -> None:
        for number, part in enumerate(self.parts):
            part.restore(part_of(state, str(number)))


def union(draws: Sequence[Draw], positive_log_count: Tensor) -> Draw:
    """The candidates of `draws` as one draw, with their counts: [K] ids, or [B, K] if some are by example.

    Shared candidates come before those of single examples, and among the shared those with stored vectors
    come last.
    """
    ranks, held, first = [], [], 0
    for draw in draws:
        size = draw.ids.shape[-1]
        rank = torch.full((size,), SHARED if draw.ids.dim() == 1 else OWN, device=draw.ids.device)
        if draw.stored is not None:
            rank[size - len(draw.stored) :] = STORED
        if draw.held is not None:
            held.append(torch.stack([draw.held[0], draw.held[1] + first]))
        ranks.append(rank)
        first += size
    order = torch.cat(ranks).argsort(stable=True)
    shared = sum(int((rank < OWN).sum()) for rank in ranks)
    examples, columns = torch.cat(held, dim=1) if held else (None, None)
    stored = [draw.stored for draw in draws if draw.stored is not None]
    return Draw(
        ids=_side_by_side([draw.ids for draw in draws])[..., order],
        log_count=_side_by_side([draw.log_count for draw in draws])[..., order],
        positive_log_count=positive_log_count,
        valid=torch.cat([draw.valid for draw in draws], dim=1)[:, order],
        held=None if examples is None else (examples, order.argsort()[columns]),
        stored=torch.cat(stored) if stored else None,
        shared=shared if shared < len(order) else 0,
    )


def _side_by_side(columns: Sequence[Tensor]) -> Tensor:
    """The columns of several draws, [K] or [B, K] each, as one tensor: [K] where all are shared."""
    if all(column.dim() == 1 for column in columns):
        return torch.cat(list(columns))
    rows = max(len(column) for column in columns if column.dim() == 2)
    return torch.cat([column.expand(rows, -1) for column in columns], dim=1)


class MixedConfig(SamplerSettings):
    """The candidates of several samplers together; their expected counts add.

    Args:
        parts: the settings of the samplers, of which at least one can draw every item.

    Draws:
        int64 [K], the candidates of all parts, shared by the batch; [B, K] where a part draws by example.

    Example, with the inputs of `SamplerSettings`:

        >>> sampler = samplers.mixed(parts=["in_batch", samplers.uniform(negatives=4)]).build(catalog)
        >>> draw = sampler.draw(users, positives, step)
        >>> draw.ids.shape
        torch.Size([6])
    """

    kind: Literal["mixed"] = "mixed"
    parts: Annotated[tuple[PartConfig, ...], Field(min_length=1)] = (InBatchConfig(), UniformConfig())

    @property
    def members(self) -> tuple[SamplerSettings, ...]:
        return self.parts

    @property
    def fixed_size(self) -> bool:
        return all(part.fixed_size for part in self.parts)

    @property
    def needs_other_examples(self) -> bool:
        return all(part.needs_other_examples for part in self.parts)

    @model_validator(mode="after")
    def _fits(self) -> "MixedConfig":
        if not any(part.covers_catalog for part in self.parts):
            kinds = " and ".join(sorted({part.kind for part in self.parts}))
            raise ValueError(
                f"{kinds} can't draw every item in every step (mined candidates are few, the queue of "
                "cross_batch is empty at first), so nothing can correct "
                'for the others; add a part that can, such as {kind = "uniform"}'
            )
        if not all(part.counts_positives for part in self.parts):
            raise ValueError(
                "the counts of a mixed draw are added item by item, which exclude_positive contradicts; "
                "leave it out of the parts (positives are masked)"
            )
        return self

    def build(self, context: BuildContext) -> Sampler:
        return MixedSampler([cast(CountingSampler, part.build(context)) for part in self.parts])


SAMPLERS: dict[str, type[SamplerSettings]] = {**_SINGLE, "mixed": MixedConfig}

if TYPE_CHECKING:
    SamplerConfig = SamplerSettings
else:
    SamplerConfig = one_of(settings for settings in SAMPLERS.values() if settings.alone)
