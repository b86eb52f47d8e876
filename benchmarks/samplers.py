"""How near samplers come to the full softmax: `python -m benchmarks.samplers` and one of the following.

`sampler_report`: `turret report samplers` on models of two real catalogs.

Protocol: train the shipped YouTubeDNN in batches of 1,024 for six epochs, then compare every sampler on 64
training examples with 200 draws of each: the gradient of the sampled softmax against that of the full one.

`kernel_alpha`: the factor alpha of the quadratic kernel alpha s^2 + 1 on trained models, and the quartic one.

Protocol: train the shipped YouTubeDNN on two real sets in batches of 1,024, for one epoch and for six, and
compare the gradient of the sampled softmax over K = 64 candidates with that of the full softmax, on 64
training examples with 200 draws of each. The quartic kernel s^4 + 1 is drawn densely. An exact draw of it by
rejection from the quadratic kernel would need s^4 + 1 <= c (alpha s^2 + 1) for all items: with |s| <= M the
least c is max(1, (M^4 + 1) / (alpha M^2 + 1)), as the ratio has its maxima at both ends. M is |h| times the
greatest |w| over the temperature. `quadratic_draws_a_quartic_draw` is c Z_2 / Z_4, the expected number of
quadratic draws for one that is accepted.

`ngram_adaptation`: how near proposals by n-grams are to the softmax of a model, while one of them follows it.

The shipped YouTubeDNN is trained with the adaptive n-gram sampler in batches of 512. After each epoch the
divergence of the model's softmax from each proposal is measured on 512 training examples: from the unigram,
the bigram, and the mixture as it began and as it has become.

`frequency_estimates`: frequencies of positives from the stream, as popularity reverses, drifts, and stays.

The shares of N items follow Zipf's law. After 200 batches they are reversed at once, or drift there over the
next 400 on straight lines of their logarithms, or stay. The estimates are looked at in every fifth batch: the
first 50 after a reversal or without a change, and all of the drift.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.harness import RESULTS, Options, run
from turret.data.manifest import hash_file
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.tower.config import ScoringConfig
from turret.training.config.experiment import load_experiment
from turret.training.randomness import stream
from turret.training.report.divergence import divergence
from turret.training.report.gradients import gradient_error
from turret.training.report.measured import Entry
from turret.training.report.plot import plot_report
from turret.training.report.queries import ExampleSource, Queries, drawer, proposal
from turret.training.report.samplers import ReportRequest, SamplerReport
from turret.training.report.table import report_table
from turret.training.run import Run
from turret.training.samplers.adaptive.dense import QuarticConfig
from turret.training.samplers.adaptive.ngram import AdaptiveNgramConfig
from turret.training.samplers.core.contract import DrawContext
from turret.training.samplers.core.settings import SamplerContext, SamplerSettings
from turret.training.samplers.fixed.bigram import BigramConfig
from turret.training.samplers.fixed.popularity import UnigramConfig
from turret.training.samplers.from_batch.streaming_frequency import Counts, Gaps, StreamingFrequency
from turret.training.samplers.kernel.quadratic import QuadraticConfig
from turret.training.statistics import PreparedStatistics
from turret.training.trainer import Trainer, train

# The events of each set, and whether their order is that of the file.
SETS = {"sasrec_ml-1m": ("interactions.parquet", False), "gowalla": ("train.parquet", True)}
SETTINGS = ("training.epochs=6", "training.batch_size=1024")
QUICK = ("training.epochs=1", "training.batch_size=1024")
ASKED, ASKED_QUICKLY = (
    ReportRequest(),
    ReportRequest(negatives=(16,), queries=16, draws=20, refresh_every=(1, 10)),
)


def trained(
    source: Path, in_file_order: bool, work: Path, settings: tuple[str, ...]
) -> tuple[Run, PreparedData]:
    """A run of the shipped experiment on one file of events."""
    columns = {"in_file_order": True} if in_file_order else {}
    prepare(PrepareConfig.model_validate({"source": source, "columns": columns}), work / "prepared")
    data = PreparedData.open(work / "prepared")
    run = Run(work / "run", load_experiment("youtubednn", settings), data.folder, data.fingerprint)
    train(run, data)
    return run, data


def report_of(name: str, options: Options, work: Path) -> dict[str, Any]:
    """The report on one set, with its sources."""
    events, in_file_order = SETS[name]
    source = options.data / name / events
    settings = QUICK if options.quick else SETTINGS
    sizes = ASKED_QUICKLY if options.quick else ASKED
    run, data = trained(source, in_file_order, work / name, settings)
    report = SamplerReport(run, data, sizes).measure()
    report["run"] = name
    print(report_table(report, show_all=True))
    if not options.quick:
        plot_report(report, RESULTS / f"sampler_report_{name}.svg")
    return {
        **report,
        "asked": asdict(sizes),
        "source_sha256": hash_file(source).sha256,
        "experiment": run.experiment.model_dump(mode="json"),
    }


def sampler_report(options: Options) -> dict[str, Any]:
    """Every set, or the first where it has to be quick."""
    names = list(SETS)[:1] if options.quick else list(SETS)
    with tempfile.TemporaryDirectory() as folder:
        return {"sets": {name: report_of(name, options, Path(folder)) for name in names}}


ALPHAS = (0.1, 1.0, 10.0, 100.0, 1000.0)
NEGATIVES, LARGER = 64, (128, 256, 512)
EPOCHS, QUICK_EPOCHS = (1, 6), (1,)


def kernels() -> Iterator[Entry]:
    """Quadratic kernels of each alpha, the first of them with more candidates, and the quartic kernel."""
    for alpha in ALPHAS:
        yield Entry(f"quadratic {alpha:g}", NEGATIVES, QuadraticConfig(alpha=alpha, negatives=NEGATIVES))
    for size in LARGER:
        yield Entry("quadratic 1", size, QuadraticConfig(alpha=1.0, negatives=size))
    yield Entry("quartic", NEGATIVES, QuarticConfig(negatives=NEGATIVES))


def accuracy(report: SamplerReport, entry: Entry) -> dict[str, Any]:
    """Divergence, bias and effective share of one sampler."""
    queries, scoring = report.queries, report.scoring
    context = SamplerContext(PreparedStatistics(report.data), scoring, report.request.seed, report.device)
    sampler = entry.settings.build(context)
    sampler.refresh(queries.vectors)
    draw_once, draws = drawer(entry, sampler, queries), report.request.draws
    error = gradient_error(queries.examples, queries.vectors, scoring, draw_once, draws)
    distance = divergence(queries.examples, queries.vectors, scoring, proposal(entry, sampler, queries))
    return {"sampler": entry.label, "negatives": entry.negatives, **asdict(distance), **asdict(error)}


def squared_scores(queries: Queries, scoring: ScoringConfig) -> tuple[Tensor, Tensor]:
    """s^2 of all queries and items, float64 [Q, N], and its bound M^2 for each query [Q, 1]."""
    users, vectors = queries.examples.users.double(), queries.vectors.double()
    longest = vectors.square().sum(dim=1).max()
    most = users.square().sum(dim=1, keepdim=True) * longest / scoring.temperature**2
    return (users @ vectors.T / scoring.temperature) ** 2, most


def rejection(squares: Tensor, most: Tensor, alpha: float) -> dict[str, Any]:
    """Medians over queries of the draws rejected: by the quadratic kernel, and by the quartic from it."""
    quadratic = (alpha * squares + 1.0).mean(dim=1)
    quartic = (squares**2 + 1.0).mean(dim=1)
    highest = (alpha * most + 1.0)[:, 0]
    ratio = ((most**2 + 1.0)[:, 0] / highest).clamp(min=1.0)
    return {
        "alpha": alpha,
        "uniform_draws_a_quadratic_draw": float((highest / quadratic).median()),
        "quadratic_draws_a_quartic_draw": float((ratio * quadratic / quartic).median()),
    }


def one_model(name: str, epochs: int, options: Options, work: Path) -> dict[str, Any]:
    """All samplers on one set after so many epochs."""
    events, in_file_order = SETS[name]
    settings = (f"training.epochs={epochs}", "training.batch_size=1024")
    run, data = trained(options.data / name / events, in_file_order, work, settings)
    request = ReportRequest(queries=16, draws=20) if options.quick else ReportRequest()
    report = SamplerReport(run, data, request)
    squares, most = squared_scores(report.queries, report.scoring)
    return {
        "set": name,
        "epochs": epochs,
        "items": len(data.item_ids),
        "scoring": report.scoring.model_dump(mode="json"),
        "samplers": [accuracy(report, entry) for entry in kernels()],
        "rejection": [rejection(squares, most, alpha) for alpha in ALPHAS],
        "mean_square_score": float(squares.mean()),
    }


def kernel_alpha(options: Options) -> dict[str, Any]:
    """Every set after each number of epochs; the first alone where it has to be quick."""
    names = list(SETS)[:1] if options.quick else list(SETS)
    with tempfile.TemporaryDirectory() as folder:
        models = [
            one_model(name, epochs, options, Path(folder) / f"{name}-{epochs}")
            for name in names
            for epochs in (QUICK_EPOCHS if options.quick else EPOCHS)
        ]
    return {"negatives": NEGATIVES, "threads": torch.get_num_threads(), "models": models}


NGRAM_SET, NGRAM_EVENTS = "ml-100k", "ratings.parquet"
EXAMPLES = 512
NGRAM_SETTINGS = (
    'objective={loss = "sampled_softmax", sampler = "adaptive_ngram"}',
    "training.batch_size=512",
)
STATIC: dict[str, SamplerSettings] = {
    "unigram": UnigramConfig(alpha=1.0),
    "bigram": BigramConfig(),
    "mixture at first": AdaptiveNgramConfig(),
}


def divergences(trainer: Trainer) -> dict[str, float | None]:
    """The mean KL in nats of each proposal from the softmax of the model as it is."""
    experiment, data = trainer.run.experiment, trainer.data
    user, scoring = experiment.tower.user, experiment.tower.scoring
    source = ExampleSource(data, user.history_length, user.reads_times)
    examples = source.read(trainer.model, EXAMPLES, stream(0, "examples", 0))
    vectors = trainer.model.current_vectors(torch.arange(len(data.item_ids)))
    context = DrawContext(stream(0, "unused", 0), examples.last_items, vectors, vectors.__getitem__)
    statistics = SamplerContext(PreparedStatistics(data), scoring, 0, torch.device("cpu"))
    samplers = {name: settings.build(statistics) for name, settings in STATIC.items()}
    assert trainer.objective.sampler is not None
    samplers["mixture that follows"] = trainer.objective.sampler
    return {
        name: divergence(examples, vectors, scoring, sampler.probability(examples.users, context)).kl
        for name, sampler in samplers.items()
    }


def ngram_adaptation(options: Options) -> dict[str, Any]:
    """Train, and measure after each epoch."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = PrepareConfig.model_validate({"source": options.data / NGRAM_SET / NGRAM_EVENTS})
        prepare(config, folder / "prepared")
        data = PreparedData.open(folder / "prepared")
        epochs = f"training.epochs={1 if options.quick else 6}"
        experiment = load_experiment("youtubednn", (*NGRAM_SETTINGS, epochs))
        run = Run(folder / "run", experiment, data.folder, data.fingerprint)
        run.write()

        def look(epoch: int, value: float) -> bool:
            rows.append({"epoch": epoch, **divergences(trainer)})
            return False

        trainer = Trainer(run, data, observe=look)
        trainer.train()
        return {"set": NGRAM_SET, "items": len(data.item_ids), "examples": EXAMPLES, "rows": rows}


BATCH = 1024
BEFORE = 200
AFTER = 50
DRIFT = 400
EVERY = 5
RATES = (0.01, 0.05)
CHANGES = ("none", "reversal", "drift")
# A gap of seven mean gaps has the probability exp(-7).
LONGEST = 7.0
Shares = NDArray[np.float64]


class OpenGap(StreamingFrequency):
    """A silence longer than the mean gap counts as one more gap; nothing starts the mean again."""

    def _changed(self, gaps: Gaps, before: Counts, hits: Counts, spans: Counts) -> NDArray[np.bool_]:
        return np.zeros(gaps.shape, dtype=np.bool_)


class Published(OpenGap):
    """Algorithm 2 of Yi et al. 2019: the mean of the gaps that have ended."""

    def _current(self, gaps: Gaps, hits: Counts, open_gaps: Counts) -> Gaps:
        return gaps


class LongestGap(OpenGap):
    """The mean is at least a seventh of the newest gap, be it ended or open."""

    def _joined(self, gaps: Gaps, before: Counts, hits: Counts, spans: Gaps | Counts) -> Gaps:
        mean = super()._joined(gaps, before, hits, spans)
        return np.where(before > 0, np.maximum(mean, spans / hits / LONGEST), mean)


ESTIMATES: dict[str, type[StreamingFrequency]] = {
    "published": Published,
    "open gap": OpenGap,
    "longest gap": LongestGap,
    "likelihood ratio": StreamingFrequency,
}


@dataclass(frozen=True)
class Moment:
    """The shares [N] that a batch is drawn from, and whether the estimates are looked at after it."""

    shares: Shares
    looked_at: bool


def moments(change: str, shares: Shares, quick: bool) -> Iterator[Moment]:
    """Every batch of a stream. `change` is one of `CHANGES`."""
    for _ in range(BEFORE):
        yield Moment(shares, False)
    length = DRIFT if change == "drift" and not quick else AFTER
    for batch in range(1, length + 1):
        done = {"none": 0.0, "reversal": 1.0, "drift": batch / length}[change]
        now = shares ** (1.0 - done) * shares[::-1] ** done
        yield Moment(now / now.sum(), batch % EVERY == 0)


def errors(log_estimates: Shares, shares: Shares) -> dict[str, float]:
    """The errors of the log shares of the items that were ever observed.

    `of_drawn` is the root of the mean square, weighted by the shares: the error for a candidate of the batch;
    `of_items` has every item alike. The mean factors are geometric: `formerly_popular` over the hundredth of
    the items that was the most popular at first, `formerly_rare` over the least.
    """
    seen = np.isfinite(log_estimates)
    error = np.where(seen, log_estimates - np.log(shares), 0.0)
    group = len(shares) // 100
    weights = shares * seen
    return {
        "of_drawn": float(np.sqrt((weights * error**2).sum() / weights.sum())),
        "of_items": float(np.sqrt((error[seen] ** 2).mean())),
        "formerly_popular": float(np.exp(error[:group][seen[:group]].mean())),
        "formerly_rare": float(np.exp(error[-group:][seen[-group:]].mean())),
    }


def simulate(
    change: str, item_count: int, rate: float, seed: int, quick: bool
) -> dict[str, dict[str, float]]:
    """The mean errors of each estimate over the batches that are looked at; all see the same stream."""
    zipf = 1.0 / np.arange(1, item_count + 1)
    random = stream(seed, "positives", 0)
    estimates = {
        name: kind(4 * item_count, 2, rate, stream(seed, "hashes", 0)) for name, kind in ESTIMATES.items()
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ESTIMATES}
    for moment in moments(change, zipf / zipf.sum(), quick):
        positives = torch.from_numpy(random.choice(item_count, BATCH, p=moment.shares))
        for name, estimate in estimates.items():
            estimate.observe(positives)
            if moment.looked_at:
                log_shares = estimate.log_share(torch.arange(item_count)).double().numpy()
                found[name].append(errors(log_shares, moment.shares))
    return {name: _mean(rows) for name, rows in found.items()}


def _mean(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def frequency_estimates(options: Options) -> dict[str, Any]:
    """Every change of every catalog at every rate, as means over the seeds."""
    sizes, seeds = ((1000,), (0,)) if options.quick else ((1000, 10_000), (0, 1, 2))
    rows: list[dict[str, Any]] = []
    for items in sizes:
        for rate in RATES:
            for change in CHANGES:
                runs = [simulate(change, items, rate, seed, options.quick) for seed in seeds]
                rows += [
                    {
                        "items": items,
                        "rate": rate,
                        "change": change,
                        "estimate": name,
                        **_mean([run[name] for run in runs]),
                    }
                    for name in ESTIMATES
                ]
    return {"seeds": list(seeds), "batch_size": BATCH, "rows": rows}


if __name__ == "__main__":
    run(sampler_report, kernel_alpha, ngram_adaptation, frequency_estimates)
