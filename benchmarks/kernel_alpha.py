"""The factor alpha of the quadratic kernel alpha s^2 + 1, measured on trained models; and the quartic kernel.

Protocol: train the shipped YouTubeDNN on two real sets in batches of 1,024, for one epoch and for six, and
compare the gradient of the sampled softmax over K = 64 candidates with that of the full softmax, on 64
training examples with 200 draws of each. The quartic kernel s^4 + 1 is drawn densely. An exact draw of it by
rejection from the quadratic kernel would need s^4 + 1 <= c (alpha s^2 + 1) for all items: with |s| <= M the
least c is max(1, (M^4 + 1) / (alpha M^2 + 1)), as the ratio has its maxima at both ends. M is |h| times the
greatest |w| over the temperature. `quadratic_draws_a_quartic_draw` is c Z_2 / Z_4, the expected number of
quadratic draws for one that is accepted.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness import Options, run
from benchmarks.sampler_report import SETS, trained
from turret.tower.config import ScoringConfig
from turret.training.report.divergence import divergence
from turret.training.report.gradients import gradient_error
from turret.training.report.measured import Entry
from turret.training.report.queries import Queries, drawer, proposal
from turret.training.report.samplers import ReportRequest, SamplerReport
from turret.training.samplers.adaptive.dense import QuarticConfig
from turret.training.samplers.core.settings import SamplerContext
from turret.training.samplers.kernel.quadratic import QuadraticConfig
from turret.training.statistics import PreparedStatistics

ALPHAS = (0.1, 1.0, 10.0, 100.0, 1000.0)
NEGATIVES, LARGER = 64, (128, 256, 512)
EPOCHS, QUICK_EPOCHS = (1, 6), (1,)


def compared() -> Iterator[Entry]:
    """Quadratic kernels of each alpha, the first of them with more candidates, and the quartic kernel."""
    for alpha in ALPHAS:
        yield Entry(f"quadratic {alpha:g}", NEGATIVES, QuadraticConfig(alpha=alpha, negatives=NEGATIVES))
    for size in LARGER:
        yield Entry("quadratic 1", size, QuadraticConfig(alpha=1.0, negatives=size))
    yield Entry("quartic", NEGATIVES, QuarticConfig(negatives=NEGATIVES))


def measured(report: SamplerReport, entry: Entry) -> dict[str, Any]:
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
        "samplers": [measured(report, entry) for entry in compared()],
        "rejection": [rejection(squares, most, alpha) for alpha in ALPHAS],
        "mean_square_score": float(squares.mean()),
    }


def measure(options: Options) -> dict[str, Any]:
    """Every set after each number of epochs; the first alone where it has to be quick."""
    names = list(SETS)[:1] if options.quick else list(SETS)
    with tempfile.TemporaryDirectory() as folder:
        models = [
            one_model(name, epochs, options, Path(folder) / f"{name}-{epochs}")
            for name in names
            for epochs in (QUICK_EPOCHS if options.quick else EPOCHS)
        ]
    return {"negatives": NEGATIVES, "threads": torch.get_num_threads(), "models": models}


if __name__ == "__main__":
    run(measure)
