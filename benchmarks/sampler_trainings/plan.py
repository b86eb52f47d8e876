"""Which trainings there are: sets, samplers, sizes and seeds.

A training of the full softmax costs 30 to 500 µs an example on one core, and one by a sampler at least as
much on a small catalog. Hence these choices:

- The full softmax has converged where twice the examples change its held-out cross entropy by less than
  0.5 %: MovieLens 100K (1,682 items) within seconds, ML-1M (3,416 items) within a minute. Beauty (12,101
  items) never does: two epochs are the best, and then it overfits. Its length is the one of the least cross
  entropy among half, once and twice the examples, which the first seed trains on every set.
- Gowalla's 40,981 items take longest; it has one seed and runs only where it is named.
- Uniform candidates are measured at each fourth size, quadratic ones at each second; where 1 % is crossed
  between two sizes, `refined` fills the gap. The other samplers have two sizes.
- The trainings of the claim come first: the full softmax, then uniform and quadratic candidates, each seed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.sampler_trainings.summary import CRITERIA, Row, by_seed, of_sampler, within

SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Case:
    """One set, how long to train on it, and with which seeds.

    Attributes:
        name: of the set's folder.
        events: the file of events in it.
        in_file_order: whether events are in the order of the file.
        examples: of one whole training.
        seeds: of model, order and draws.
        by_default: whether it runs without being named.
    """

    name: str
    events: str
    in_file_order: bool
    examples: int
    seeds: tuple[int, ...] = SEEDS
    by_default: bool = True


CASES = (
    Case("ml-100k", "ratings.parquet", False, 250_000),
    Case("s3rec_beauty", "interactions.parquet", False, 300_000),
    Case("sasrec_ml-1m", "interactions.parquet", False, 3_000_000),
    Case("gowalla", "train.parquet", True, 2_400_000, seeds=(0,), by_default=False),
)
SHOP = Case("synthetic", "", False, 30_000, seeds=(0, 1))


@dataclass(frozen=True)
class Training:
    """One training: `k` candidates of `sampler`, or the full softmax with `k` = 0."""

    set: str
    sampler: str
    k: int
    absolute: bool
    seed: int
    examples: int

    def matches(self, row: Row) -> bool:
        """Whether `row` is the measurement of this training."""
        return all(row[name] == value for name, value in asdict(self).items())


@dataclass(frozen=True)
class Asked:
    """A sampler's settings (K is put in as `negatives`), at which K, and for which model.

    `largest` is the largest K that `refined` may add; 0 where none is added.
    """

    settings: dict[str, Any]
    sizes: tuple[int, ...]
    absolute: bool = True
    largest: int = 0


_UNIFORM = {"kind": "uniform", "exclude_positive": True}
_QUADRATIC = {"kind": "quadratic", "exclude_positive": True, "refresh_every": 1}
SAMPLERS = {
    "uniform": Asked(_UNIFORM, (8, 32, 128, 512), largest=1024),
    "quadratic": Asked(_QUADRATIC, (4, 8, 16, 32, 64), largest=128),
    "unigram": Asked({"kind": "unigram", "alpha": 1.0, "exclude_positive": True}, (16, 64)),
    "in_batch": Asked({"kind": "in_batch"}, (64, 256)),
    # Every draw looks at the whole catalog, and two sizes show whether the curve is flat.
    "softmax": Asked({"kind": "softmax", "exclude_positive": True}, (4, 32)),
    "uniform_signed": Asked(_UNIFORM, (32, 128), absolute=False),
    "quadratic_signed": Asked(_QUADRATIC, (16, 64), absolute=False),
    "positive_features": Asked({"kind": "positive_features", "refresh_every": 1}, (16, 64), absolute=False),
}
_CLAIMED = ("uniform", "quadratic")


def missing(case: Case, rows: Sequence[Row]) -> list[Training]:
    """The next trainings of a set, of those without a row; none where the set is complete.

    Seed by seed come the full softmax and the two samplers that are compared, then the sizes that their
    crossings of 1 % ask for; the other samplers follow.
    """
    stages = [stage for seed in case.seeds for stage in (claimed(case, seed), refined(case, seed, rows))]
    for stage in (*stages, others(case)):
        if wanted := [one for one in stage if not any(map(one.matches, rows))]:
            return wanted
    return []


def claimed(case: Case, seed: int) -> Iterator[Training]:
    """The full softmax and both compared samplers.

    For the first seed the full softmax is also trained on twice and on half the examples.
    """
    others = (2 * case.examples, case.examples // 2) if seed == case.seeds[0] else ()
    yield from _full(case, seed, case.examples)
    yield from _of_sizes(case, seed, _CLAIMED)
    for examples in others:
        yield from _full(case, seed, examples)


def others(case: Case) -> Iterator[Training]:
    """The samplers that stand beside the claim."""
    for seed in case.seeds:
        yield from _of_sizes(case, seed, [name for name in SAMPLERS if name not in _CLAIMED])


def _full(case: Case, seed: int, examples: int) -> Iterator[Training]:
    for absolute in (True, False):
        yield Training(case.name, "full", 0, absolute, seed, examples)


def _of_sizes(case: Case, seed: int, names: Iterable[str]) -> Iterator[Training]:
    for name in names:
        for size in SAMPLERS[name].sizes:
            yield Training(case.name, name, size, SAMPLERS[name].absolute, seed, case.examples)


def refined(case: Case, seed: int, rows: Sequence[Row]) -> list[Training]:
    """The trainings of uniform and quadratic candidates that a crossing of 1 % asks for after `rows`."""
    mine = by_seed(rows, case.name).get(seed)
    if not mine:
        return []
    found = []
    for name in _CLAIMED:
        plan = SAMPLERS[name]
        sizes = {_between(mine, name, plan.largest, measure) for measure in CRITERIA}
        found += [
            Training(case.name, name, size, plan.absolute, seed, case.examples)
            for size in sorted(sizes - {0})
        ]
    return found


def _between(rows: Sequence[Row], sampler: str, largest: int, measure: str) -> int:
    """Twice the largest size outside 1 % where no size up to the first one inside was measured, or 0."""
    needed = within(rows, sampler, measure)
    sizes = [row["k"] for row in of_sampler(rows, sampler)]
    outside = [size for size in sizes if needed is None or size < needed]
    if not outside:
        return 0
    size: int = 2 * max(outside)
    return size if size <= largest and (needed is None or size < needed) else 0
