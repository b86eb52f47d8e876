"""How near samplers come to the full softmax: `python -m benchmarks.samplers` and one of the following.

`sampler_report`: `turret report samplers` on models of two real catalogs.

Protocol: train the shipped YouTubeDNN in batches of 1,024 for six epochs, then compare every sampler on 64
training examples with 200 draws of each: the gradient of the sampled softmax against that of the full one.

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

from benchmarks.harness import RESULTS, Options, run
from turret.data.manifest import hash_file
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.config.experiment import load_experiment
from turret.training.randomness import stream
from turret.training.report.commands import plot_report
from turret.training.report.samplers import ReportRequest, SamplerReport
from turret.training.report.table import report_table
from turret.training.run import Run
from turret.training.samplers.from_batch.frequency import Counts, Gaps, StreamingFrequency
from turret.training.trainer import train

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


BATCH = 1024
BEFORE = 200
AFTER = 50
DRIFT = 400
EVERY = 5
RATES = (0.01, 0.05)
CHANGES = ("none", "reversal", "drift")
Shares = NDArray[np.float64]


class Published(StreamingFrequency):
    """Algorithm 2 of Yi et al. 2019: the mean of the gaps that have ended; nothing starts it again."""

    def _changed(self, gaps: Gaps, before: Counts, hits: Counts, spans: Counts) -> NDArray[np.bool_]:
        return np.zeros(gaps.shape, dtype=np.bool_)

    def _current(self, gaps: Gaps, hits: Counts, open_gaps: Counts) -> Gaps:
        return gaps


ESTIMATES: dict[str, type[StreamingFrequency]] = {
    "published": Published,
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

    `of_drawn` is the root of the mean square, weighted by the shares: the error for a candidate of the batch.
    The mean factors are geometric: `formerly_popular` over the hundredth of
    the items that was the most popular at first, `formerly_rare` over the least.
    """
    seen = np.isfinite(log_estimates)
    error = np.where(seen, log_estimates - np.log(shares), 0.0)
    group = len(shares) // 100
    weights = shares * seen
    return {
        "of_drawn": float(np.sqrt((weights * error**2).sum() / weights.sum())),
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
    run(sampler_report, frequency_estimates)
