"""Every sampler by kind: those of Turret, the entry points `turret.samplers`, and mixed draws of them."""

from typing import TYPE_CHECKING, Annotated, Literal, cast

from pydantic import Field, model_validator

from turret.training.samplers.adaptive.dense import MinedConfig, QuarticConfig, SoftmaxConfig, TwoPassConfig
from turret.training.samplers.adaptive.features import FourierFeaturesConfig, PositiveFeaturesConfig
from turret.training.samplers.adaptive.ngram import AdaptiveNgramConfig, BigramConfig
from turret.training.samplers.core.contract import CountingSampler, Sampler
from turret.training.samplers.core.settings import BuildContext, SamplerSettings, by_kind, one_of
from turret.training.samplers.fixed.popularity import (
    BernoulliConfig,
    ExactHeadConfig,
    LogUniformConfig,
    UniformConfig,
    UnigramConfig,
)
from turret.training.samplers.from_batch.in_batch import CrossBatchConfig, InBatchConfig
from turret.training.samplers.kernel.quadratic import QuadraticConfig
from turret.training.samplers.union import MixedSampler

_SINGLE: dict[str, type[SamplerSettings]] = by_kind(
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
)

# For mypy a union whose members are known only when Turret runs is its base class.
if TYPE_CHECKING:
    PartConfig = SamplerSettings
else:
    PartConfig = one_of(settings for settings in _SINGLE.values() if settings.mixable)


class MixedConfig(SamplerSettings):
    """The candidates of several samplers together; their expected counts add."""

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
