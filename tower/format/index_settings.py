"""The settings of each kind of index: the part of a manifest that describes an index."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from turret.tower.config import Settings

# Lists are 1.5 times the root of the items: 128 to 400 lists of 41,000 items were alike, and 810 took a
# quarter longer.
_LISTS = 1.5
# One list of codes was faster than several up to 10,000 items on vectors of trained models, and up to 200,000
# on vectors without clusters.
_ONE_LIST, _PERHAPS_ONE_LIST, _MANY = 10_000, 200_000, 100_000
# Lists and graphs of more items take minutes to build, and no measured vectors made them the fastest.
_SLOW_FROM = 20_000


class SearchParams(Settings):
    """The search parameters of an approximate index for up to `k` rows.

    `breadth`: HNSW's ef, or the number of lists (nprobe) of an inverted file; 1 for an index that reads every
    code. `candidates`: the number of best approximations that are scored exactly, at least k.
    """

    k: int = Field(ge=1)
    breadth: int = Field(default=1, ge=1)
    candidates: int = Field(ge=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.candidates < self.k:
            raise ValueError(
                f"candidates = {self.candidates} is less than k = {self.k}, so a search would find too few "
                "rows; set at least k"
            )
        return self


UNTUNED = (SearchParams(k=1, candidates=1),)


@dataclass(frozen=True)
class VectorFacts:
    """Facts of N item vectors that decide which settings are worth trying.

    `biased`: the last column is a bias. `unequal`: lengths differ otherwise than by a bias.
    """

    count: int
    dimension: int
    biased: bool
    unequal: bool


class IndexSettings(Settings):
    """The part of a manifest that describes an index. A subclass names its `kind` as a `Literal`."""

    kind: str
    is_exact: bool

    # Building it for more items takes minutes, so that `auto` tries it last.
    slow_from: ClassVar[float] = inf
    # `auto` leaves it out where the lengths of the vectors spread by more.
    most_spread: ClassVar[float] = inf
    # Whether its index is a `ApproximateIndex`: it is measured for the cheapest search that reaches a recall.
    is_tunable: ClassVar[bool] = False
    # Whether `Index.nearest` waits for another process or host: `turret serve` then searches in threads.
    is_remote: ClassVar[bool] = False
    # Whether it has a file of its own, beside the item vectors.
    has_file: ClassVar[bool] = True
    # Whether equal searches always have equal answers: those of an engine that merges its files in the
    # background may change, so recorded queries are answered by the exact search.
    is_stable: ClassVar[bool] = True

    @classmethod
    def proposals(cls, facts: VectorFacts) -> Sequence["IndexSettings"]:
        """The settings that `turret index` tries for such vectors, likely winners first."""
        return []

    @property
    def label(self) -> str:
        """The kind, and the parameters that tell one proposal from another."""
        return self.kind


class FlatSettings(IndexSettings):
    """Every vector is compared with the query: recall is 1."""

    kind: Literal["flat"] = "flat"
    is_exact: Literal[True] = True

    has_file: ClassVar[bool] = False


class ApproximateSettings(IndexSettings):
    """`efforts` by rising k; a larger k than the last is searched for exactly.

    So is a search among at most `subset_rows` allowed rows, where exact scores of them cost less.
    `own_recall`: the recall of item vectors searched as queries; an index of another model of the same size
    has a lower one.
    """

    is_exact: Literal[False] = False
    efforts: tuple[SearchParams, ...] = Field(min_length=1)
    subset_rows: int = Field(default=0, ge=0)
    own_recall: float | None = Field(default=None, ge=0, le=1)

    is_tunable: ClassVar[bool] = True
    # The values of candidates / k to try.
    factors: ClassVar[tuple[float, ...]] = (1,)

    @classmethod
    def proposals(cls, facts: VectorFacts) -> Sequence[IndexSettings]:
        """One, of the default parameters."""
        return [cls.model_validate({"efforts": UNTUNED})]

    def width(self, dimension: int) -> int:
        """The number of columns that are stored of vectors of `dimension` columns."""
        return dimension

    def breadths(self, k: int, least: int) -> list[int]:
        """The values of `SearchParams.breadth` to try for `k`, ascending from `least`."""
        return [1]


class ScalarSettings(ApproximateSettings):
    """Eight bits a coordinate, all compared with the query; the best are scored exactly."""

    kind: Literal["sq8"] = "sq8"
    factors: ClassVar[tuple[float, ...]] = (1.2, 2, 4)


class HnswSettings(ApproximateSettings):
    """A graph of near neighbours (HNSW) over the item vectors themselves: `links` a node and level."""

    kind: Literal["hnsw"] = "hnsw"
    links: int = Field(default=16, ge=2, le=128)
    ef_construction: int = Field(default=200, ge=8, le=2000)
    slow_from: ClassVar[float] = _SLOW_FROM
    # Graphs of inner products lose whole regions beyond it (a recall of .57 was seen at k = 1,000).
    most_spread: ClassVar[float] = 0.25

    def breadths(self, k: int, least: int) -> list[int]:
        """ef is at least k."""
        return _by_a_tenth(max(k, least), 8 * k + 1000)


class InvertedSettings(ApproximateSettings):
    """`lists` cells of spherical k-means, read in the order of their centres' inner products with the query.

    `augmented`: stored vectors have one more column, which makes all equally long. `biased`: the last column
    of an item vector is its bias, which is no part of its direction.
    """

    lists: int = Field(ge=1)
    augmented: bool = False
    biased: bool = False

    @classmethod
    def proposals(cls, facts: VectorFacts) -> Sequence[IndexSettings]:
        """One, with as many lists as suit the count."""
        lists = {"biased": facts.biased, "augmented": facts.unequal, "lists": _lists(facts.count)}
        return [cls.model_validate({"efforts": UNTUNED, **lists})]

    @property
    def is_rotated(self) -> bool:
        """Whether codes are of rotated vectors."""
        return False

    @property
    def reads_all(self) -> bool:
        """Whether every code is read, in no lists."""
        return False

    def width(self, dimension: int) -> int:
        """One more to make lengths equal."""
        return dimension + self.augmented

    def breadths(self, k: int, least: int) -> list[int]:
        """Up to all lists."""
        return _by_a_tenth(least, max(least, self.lists))


class IvfSettings(InvertedSettings):
    """Lists of the vectors as eight bits a coordinate."""

    kind: Literal["ivf"] = "ivf"
    factors: ClassVar[tuple[float, ...]] = (1.2, 2)
    slow_from: ClassVar[float] = _SLOW_FROM


class IvfPqSettings(InvertedSettings):
    """Lists of product codes: `parts` of four bits each, of the rotated vector, read many at a time.

    One list of codes may be of unrotated vectors, which spares a query its rotation: unless `rotated`.
    """

    kind: Literal["ivf_pq"] = "ivf_pq"
    parts: int = Field(ge=1)
    rotated: bool = False
    factors: ClassVar[tuple[float, ...]] = (1.5, 2, 2.5, 3, 4, 6, 10)

    @property
    def reads_all(self) -> bool:
        """With one list of vectors that are equally long."""
        return self.lists == 1 and not self.biased and not self.augmented

    @property
    def is_rotated(self) -> bool:
        """In several lists always."""
        return self.rotated or not self.reads_all

    def width(self, dimension: int) -> int:
        """Product codes need parts of one size."""
        needed = dimension + self.augmented
        return needed + -needed % self.parts

    @classmethod
    def proposals(cls, facts: VectorFacts) -> Sequence[IndexSettings]:
        """By the number of lists, each of which costs .3 microseconds; one list also rotated."""
        some = round((2 if facts.count >= _MANY else 1) * sqrt(facts.count))
        counts = [1] if facts.count <= _ONE_LIST else [some]
        if _ONE_LIST < facts.count <= _PERHAPS_ONE_LIST:
            counts.append(1)
        stored = {"augmented": facts.unequal, "parts": facts.dimension + facts.unequal}
        proposals: list[IndexSettings] = []
        for lists in counts:
            plain = cls(efforts=UNTUNED, biased=facts.biased, lists=lists, **stored)
            proposals += [plain, plain.model_copy(update={"rotated": True})] if plain.reads_all else [plain]
        return proposals

    @property
    def label(self) -> str:
        """With the number of lists."""
        rotated = ", rotated" if self.reads_all and self.rotated else ""
        return f"{self.kind} of {self.lists:,} list{'s' * (self.lists > 1)}{rotated}"


class RabitqSettings(InvertedSettings):
    """Lists of RaBitQ codes: one bit a coordinate of the rotated vector, for inner products."""

    kind: Literal["rabitq"] = "rabitq"
    factors: ClassVar[tuple[float, ...]] = (4, 8, 16, 32, 64)
    slow_from: ClassVar[float] = _SLOW_FROM

    @property
    def is_rotated(self) -> bool:
        """Always."""
        return True

    @classmethod
    def proposals(cls, facts: VectorFacts) -> Sequence[IndexSettings]:
        """FAISS computes inner products with these codes, so that lengths may differ."""
        return [cls(efforts=UNTUNED, biased=facts.biased, lists=_lists(facts.count))]


def _lists(count: int) -> int:
    return max(1, min(count // 40, round(_LISTS * sqrt(count))))


def _by_a_tenth(first: int, last: int) -> list[int]:
    steps = np.unique(np.geomspace(first, last, 1 + int(np.log(last / first) / np.log(1.1))).astype(int))
    return [int(step) for step in steps]
