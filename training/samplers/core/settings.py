"""The settings of samplers, and makers of losses and samplers by kind."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol, TypeVar, Union

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from turret.data.configuration import load_configuration
from turret.tower.config import ScoringConfig, Settings
from turret.training.samplers.core.contract import Sampler

Negatives = Annotated[int, Field(strict=True, ge=1, le=10_000_000)]
Steps = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
Power = Annotated[float, Field(ge=0.0, le=2.0)]
Counts = NDArray[np.int64]


class ItemStatistics(Protocol):
    """Counts over a catalog of N items. Methods raise TrainingError for counts that are not available."""

    @property
    def item_count(self) -> int:
        """N, the size of the catalog."""
        ...

    def item_counts(self) -> Counts:
        """How many training events each item has: int64 [N]."""
        ...

    def target_counts(self) -> Counts:
        """How many training events of each item can be predicted: int64 [N]."""
        ...

    def positive_counts(self) -> Counts:
        """How many training examples have each item as their positive: int64 [N]."""
        ...

    def bigram_counts(self) -> tuple[Counts, Counts]:
        """The sorted pairs previous * N + next of consecutive events, int64 [P], and their counts [P]."""
        ...


@dataclass(frozen=True)
class BuildContext:
    """Input of the builders of samplers and objectives.

    Attributes:
        statistics: item counts of the training part.
        scoring: how two vectors become a score.
        seed: the seed of the run.
        device: the device of the vectors.
        mask_seen: whether the items that a user has used are masked.
        dimension: D, the width of vectors, where the objective has vectors of its own.
    """

    statistics: ItemStatistics
    scoring: ScoringConfig
    seed: int
    device: torch.device
    mask_seen: bool = False
    dimension: int = 0

    @property
    def item_count(self) -> int:
        """N, the size of the catalog."""
        return self.statistics.item_count


class SamplerSettings(Settings, ABC):
    """A sampler's settings and capabilities. Subclasses add `kind`, a literal with that default.

    The examples of subclasses have these inputs: `catalog` is a `BuildContext` of ten items with `vectors`
    [10, 2], of which row 0 is the most frequent; `users` [2, 2] and `positives` [5, 6] are a batch of two
    examples, and `step` is its `DrawContext`, with negatives [2, 3].
    """

    kind: str

    symmetric: ClassVar[bool] = True
    """Whether q(i | h) = q(i | -h), as the absolute softmax needs."""
    alone: ClassVar[bool] = True
    """Whether the sampler can be used outside a mixed draw."""
    mixable: ClassVar[bool] = False
    """Whether the sampler can be a part of a mixed draw; it is a CountingSampler then."""
    covers_catalog: ClassVar[bool] = True
    """Whether every item can be drawn in every step."""
    scores_catalog: ClassVar[bool] = False
    """Whether each draw scores the whole catalog."""

    @property
    def members(self) -> "tuple[SamplerSettings, ...]":
        """The settings of the samplers whose candidates are united: these, or the parts of a mixed draw."""
        return (self,)

    @property
    def reads_batch(self) -> bool:
        """Whether a draw depends on all examples of the batch."""
        return False

    @property
    def remembered_batches(self) -> int:
        """The number of earlier batches that a draw depends on."""
        return 0

    @property
    def fixed_size(self) -> bool:
        """Whether all draws have the same number of candidates."""
        return True

    @property
    def counts_positives(self) -> bool:
        """Whether the draw has the expected counts of the positives."""
        return True

    @property
    def needs_other_examples(self) -> bool:
        """Whether a batch of one example has no candidate."""
        return False

    @abstractmethod
    def build(self, context: BuildContext) -> Sampler:
        """Build the sampler. Raises TrainingError where the statistics have nothing to draw by."""


class ExcludingSettings(SamplerSettings, ABC):
    """A sampler whose draw can leave the positive out: complementary sum sampling (Botev et al. 2017).

    Args:
        exclude_positive: whether each example draws without its positive, which is masked otherwise.
    """

    exclude_positive: bool = False

    @property
    def counts_positives(self) -> bool:
        return not self.exclude_positive


Kind = TypeVar("Kind", bound=Settings)


def one_of(settings: Iterable[type[Settings]]) -> Any:
    """The type of a setting that is a table with one of these kinds, or the name of the kind alone."""
    union: Any = Union[tuple(settings)]  # noqa: UP007 - the members are computed
    name_alone = BeforeValidator(lambda value: {"kind": value} if isinstance(value, str) else value)
    return Annotated[Annotated[union, Field(discriminator="kind")], name_alone]


def maker(kinds: Mapping[str, type[Kind]], kind: str, what: str) -> Callable[..., Kind]:
    """A function from keywords to the settings of a kind. Raises AttributeError for an unknown kind."""
    if kind not in kinds:
        raise AttributeError(f"there is no {what} {kind!r}; there are {', '.join(sorted(kinds))}")

    def make(**settings: Any) -> Kind:
        """The settings. Raises ConfigurationError for a setting that doesn't fit."""
        return load_configuration(kinds[kind], None, {"kind": kind, **settings})

    return make
