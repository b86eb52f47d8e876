"""Which trainings there are: sets, samplers, sizes and seeds.

A training of the full softmax costs 30 to 500 µs an example on one core, and one by a sampler at least as
much on a small catalog. Hence these choices:

- The full softmax has converged where twice the examples change its held-out cross entropy by less than
  0.5 %: MovieLens 100K (1,682 items) within seconds, ML-1M (3,416 items) within a minute. Beauty (12,101
  items) never does: two epochs are the best, and then it overfits. Its length is the one of the least cross
  entropy among half, once and twice the examples, which the first seed trains on every set.
- Gowalla's 40,981 items take longest; it has one seed and runs only where it is named.
- Uniform and quadratic candidates are measured where 1 % is crossed; the other samplers have two sizes.
- The trainings of the claim come first: the full softmax, then uniform and quadratic candidates, each seed.
"""

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.data.synthetic.synthesis import SyntheticConfig, synthesise
from turret.tower.towers.model import TwoTowers
from turret.tower.towers.scoring import cross_scores
from turret.training.batches.batches import Batch, TrainingBatches, target_counts
from turret.training.comparison.seeds import spread
from turret.training.config.experiment import ExperimentConfig, ObjectiveConfig
from turret.training.evaluation.ranking import histories_of
from turret.training.losses.catalog import full_softmax
from turret.training.losses.loss import settings_of
from turret.training.losses.sampled import sampled_softmax
from turret.training.model_loss import build_objective, model_loss
from turret.training.objectives.contract import Objective
from turret.training.objectives.sampled import SampledObjective
from turret.training.randomness import stream
from turret.training.run import build_model
from turret.training.samplers.core.contract import DrawContext
from turret.training.samplers.core.draw import Draw, without_accidental_hits
from turret.training.samplers.from_batch.frequency import KnownFrequency
from turret.training.samplers.from_batch.in_batch import InBatchSampler

Row = dict[str, Any]
CRITERIA = ("cross_entropy", "perplexity")
SHARE = 0.01


def of_sampler(rows: Sequence[Row], sampler: str) -> list[Row]:
    """The rows of a sampler by falling K."""
    return sorted((row for row in rows if row["sampler"] == sampler), key=lambda row: -row["k"])


def full_of(rows: Sequence[Row], absolute: bool) -> Row:
    """The full softmax with this scoring, on as many examples as the samplers; of one set and seed."""
    found = [row for row in rows if row["sampler"] == "full" and row["absolute"] == absolute]
    lengths = {row["examples"] for row in rows if row["k"]}
    alike = [row for row in found if row["examples"] in lengths]
    return min(alike or found, key=lambda row: int(row["examples"]))


def excess(rows: Sequence[Row], row: Row, measure: str) -> float:
    """The share by which `row` is above the full softmax of its scoring, among `rows` of its set and seed."""
    return float(row[measure] / full_of(rows, row["absolute"])[measure] - 1.0)


def within(rows: Sequence[Row], sampler: str, measure: str, share: float = SHARE) -> int | None:
    """The least K from which on a sampler stays within `share` of the full softmax; of one set and seed."""
    least = None
    for row in of_sampler(rows, sampler):
        if excess(rows, row, measure) > share:
            break
        least = row["k"]
    return least


def summary(rows: Sequence[Row]) -> Row:
    """Every figure that is claimed, by set."""
    sets = {name: by_seed(rows, name) for name in dict.fromkeys(row["set"] for row in rows)}
    return {
        "full_softmax": {name: _ends(seeds) for name, seeds in sets.items()},
        "k_within_1pct": {
            name: {measure: _needed(seeds, measure) for measure in CRITERIA} for name, seeds in sets.items()
        },
        "uniform_over_quadratic": {
            name: {measure: _ratios(seeds, measure) for measure in CRITERIA} for name, seeds in sets.items()
        },
    }


def by_seed(rows: Sequence[Row], name: str) -> dict[int, list[Row]]:
    """The rows of a set, by seed, for seeds with both full softmaxes."""
    mine = [row for row in rows if row["set"] == name]
    signed, absolute = (
        {row["seed"] for row in of_sampler(mine, "full") if row["absolute"] == kind} for kind in (False, True)
    )
    return {seed: [row for row in mine if row["seed"] == seed] for seed in sorted(signed & absolute)}


def samplers_of(seeds: dict[int, list[Row]]) -> list[str]:
    """The samplers of a set, in their order; the full softmax is none."""
    return list(dict.fromkeys(row["sampler"] for rows in seeds.values() for row in rows if row["k"]))


def _ends(seeds: dict[int, list[Row]]) -> Row:
    return {
        name: {
            measure: spread([full_of(rows, absolute)[measure] for rows in seeds.values()])
            for measure in CRITERIA
        }
        for name, absolute in (("absolute", True), ("signed", False))
    }


def _needed(seeds: dict[int, list[Row]], measure: str) -> Row:
    found: Row = {}
    for sampler in samplers_of(seeds):
        measured = {seed: rows for seed, rows in seeds.items() if of_sampler(rows, sampler)}
        sizes = {str(seed): within(rows, sampler, measure) for seed, rows in measured.items()}
        known = [size for size in sizes.values() if size is not None]
        found[sampler] = {"seeds": sizes, **(spread(known) if len(known) == len(sizes) else {})}
    return found


def _ratios(seeds: dict[int, list[Row]], measure: str) -> Row:
    """How many times as many candidates uniform needs, by seed.

    Where uniform never comes within 1 %, twice its largest K stands for its need; `at_least` has such seeds.
    """
    found: dict[str, float] = {}
    at_least = []
    for seed, rows in seeds.items():
        uniform, quadratic = (within(rows, name, measure) for name in ("uniform", "quadratic"))
        if quadratic is None or not of_sampler(rows, "uniform"):
            continue
        if uniform is None:
            at_least.append(seed)
        found[str(seed)] = (uniform or 2 * of_sampler(rows, "uniform")[0]["k"]) / quadratic
    return {"seeds": found, "at_least": at_least, **(spread(list(found.values())) if found else {})}


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
    """A sampler's settings (K is put in as `negatives`), at which K, and for which model."""

    settings: dict[str, Any]
    sizes: tuple[int, ...]
    absolute: bool = True


_UNIFORM = {"kind": "uniform", "exclude_positive": True}
_QUADRATIC = {"kind": "quadratic", "exclude_positive": True, "refresh_every": 1}
SAMPLERS = {
    "uniform": Asked(_UNIFORM, (8, 32, 64, 128, 256, 512, 1024)),
    "quadratic": Asked(_QUADRATIC, (4, 8, 16, 32, 64, 128)),
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
    """The trainings of a set without a row; first the full softmax and both compared samplers, by seed."""
    wanted: list[Training] = []
    for seed in case.seeds:
        # For the first seed the full softmax is also trained on twice and on half the examples.
        lengths = (case.examples, 2 * case.examples, case.examples // 2)
        for examples in lengths if seed == case.seeds[0] else lengths[:1]:
            wanted += [Training(case.name, "full", 0, kind, seed, examples) for kind in (True, False)]
        wanted += _of_sizes(case, seed, _CLAIMED)
    for seed in case.seeds:
        wanted += _of_sizes(case, seed, [name for name in SAMPLERS if name not in _CLAIMED])
    return [one for one in wanted if not any(map(one.matches, rows))]


def _of_sizes(case: Case, seed: int, names: Iterable[str]) -> Iterator[Training]:
    for name in names:
        for size in SAMPLERS[name].sizes:
            yield Training(case.name, name, size, SAMPLERS[name].absolute, seed, case.examples)


BATCH = 512
RATE = 2e-2  # a fifth of it is still 3 % above this after twice the examples of MovieLens 100K
WIDTH = 32
CPU = torch.device("cpu")


class SomeOfTheBatch(InBatchSampler):
    """K of the batch's positives, so that in-batch candidates can be compared at every K."""

    def __init__(self, frequency: KnownFrequency, item_count: int, negatives: int) -> None:
        super().__init__(frequency, item_count)
        self.negatives = negatives

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw [K] of the positives without replacement; item i is expected K p_i times among them."""
        size = min(self.negatives, len(positives))
        ids = positives[torch.from_numpy(context.random.choice(len(positives), size, replace=False))]
        log_size = math.log(size)
        return Draw(
            ids=ids,
            log_count=log_size + self.frequency.log_share(ids),
            positive_log_count=log_size + self.frequency.log_share(positives),
            valid=without_accidental_hits(ids, positives),
        )


def prepare_events(case: Case, source: Path, folder: Path) -> None:
    """Put the case's events, last item out, into a folder of its name."""
    config: dict[str, Any] = {"source": source / case.name / case.events}
    if not case.events:
        config["source"] = folder / "raw"
        synthesise(SyntheticConfig(users=2_000, items=1_000), folder / "raw")
    if case.in_file_order:
        config["columns"] = {"in_file_order": True}
    prepare(PrepareConfig.model_validate(config), folder / case.name)


def experiment(absolute: bool, seed: int, width: int = WIDTH) -> ExperimentConfig:
    """The model of all trainings: inner products of vectors, from the mean and the last of the history."""
    user = {"hidden": [], "dropout": 0.0, "history_length": 20}
    scoring = {"kind": "dot", "temperature": 1.0, "absolute": absolute}
    tower = {"dimension": width, "user": user, "scoring": scoring}
    objective = {"loss": "full_softmax"}
    return ExperimentConfig.model_validate(
        {"tower": tower, "objective": objective, "training": {"seed": seed}}
    )


def objective_of(training: Training, config: ExperimentConfig, data: PreparedData) -> Objective:
    """The sampled softmax over K candidates of the sampler; the full softmax for none."""
    size, seed = training.k, training.seed
    if training.sampler == "in_batch":
        drawn = SomeOfTheBatch(KnownFrequency(target_counts(data), CPU), len(data.item_ids), size)
        return SampledObjective(settings_of(sampled_softmax)(), drawn, len(data.item_ids))
    objective: dict[str, Any] = {"loss": "full_softmax"}
    if training.sampler != "full":
        settings = SAMPLERS[training.sampler].settings
        objective = {"loss": "sampled_softmax", "sampler": {**settings, "negatives": size}}
    return build_objective(ObjectiveConfig.model_validate(objective), config.tower, data, seed, CPU)


def batches_of(data: PreparedData, steps: int, seed: int) -> Iterator[Batch]:
    """The first `steps` batches of as many epochs as it takes."""
    # Few examples of one user in a batch, or its positives would be candidates of one another.
    batches = TrainingBatches(data, BATCH, history_length=20, span_length=4)
    epochs = (batches.epoch(stream(seed, "order", epoch)) for epoch in itertools.count())
    return itertools.islice(itertools.chain.from_iterable(epochs), steps)


def train(model: TwoTowers, objective: Objective, data: PreparedData, steps: int, seed: int) -> None:
    """Adam under a half cosine to zero; a sampler that follows the vectors is told of every step."""
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    if objective.sampler:
        objective.sampler.refresh(model.catalog_vectors().detach())
    for step, batch in enumerate(batches_of(data, steps, seed)):
        optimiser.zero_grad()
        torch.autograd.backward(model_loss(objective, model, batch, stream(seed, "draw", step)).loss)
        optimiser.step()
        schedule.step()
        if objective.sampler:
            objective.sampler.update(model.current_vectors)


@torch.no_grad()
def cross_entropy(model: TwoTowers, data: PreparedData) -> float:
    """The mean full softmax cross entropy of held-out targets: the validation item of each user."""
    starts, ends = (np.asarray(bound) for bound in data.bounds("validation"))
    users = np.flatnonzero(ends > starts)
    items = model.eval().catalog_vectors()
    targets = torch.from_numpy(data.event_items[starts[users]].astype(np.int64))
    losses = []
    for first in range(0, len(users), BATCH):
        block = slice(first, first + BATCH)
        histories = histories_of(data, users[block], "validation", model.config.user.history_length)
        vectors = model.user_vectors(histories, items[histories.rows])
        losses.append(full_softmax(cross_scores(vectors, items, model.config.scoring), targets[block]))
    return float(torch.cat(losses).mean())


def measured(training: Training, folder: Path) -> dict[str, Any]:
    """Train once on the data prepared in `folder`, and measure."""
    torch.set_num_threads(1)
    data = PreparedData.open(folder)
    config = experiment(training.absolute, training.seed)
    model = build_model(config, data)
    start = time.process_time()
    train(model, objective_of(training, config, data), data, training.examples // BATCH, training.seed)
    reached = cross_entropy(model, data)
    return {
        **asdict(training),
        "cross_entropy": reached,
        "perplexity": math.exp(reached),
        "seconds": time.process_time() - start,
    }
