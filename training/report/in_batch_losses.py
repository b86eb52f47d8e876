"""The gradient error of the softmax losses that are in use over in-batch candidates, by batch size."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch

from turret.tower.config import ScoringConfig
from turret.training.losses.loss import settings_of
from turret.training.losses.sampled import sampled_softmax, sampled_softmax_corrected
from turret.training.objectives.sampled import DrawLossSettings
from turret.training.randomness import stream
from turret.training.report.gradients import gradient_error
from turret.training.report.queries import Queries
from turret.training.samplers.core.draw import Draw, without_accidental_hits
from turret.training.samplers.core.settings import SamplerContext
from turret.training.samplers.from_batch.in_batch import InBatchConfig, InBatchSampler

_CORRECTED = settings_of(sampled_softmax_corrected)
LOSSES: dict[str, DrawLossSettings] = {
    "sampled_softmax": settings_of(sampled_softmax)(),
    "sampled_softmax_corrected": _CORRECTED(),
    "sampled_softmax_corrected, hits kept": _CORRECTED(remove_accidental_hits=False),
}


def in_batch_losses(
    queries: Queries, context: SamplerContext, scoring: ScoringConfig, sizes: tuple[int, ...], draws: int
) -> list[dict[str, Any]]:
    """Compare each loss over the same batches with the full softmax; `sizes` are those of the batches.

    Each query takes the place of the first example of a batch whose other positives are drawn from the
    training part, and item frequencies are known.
    """
    sampler = InBatchConfig().build(context)
    assert isinstance(sampler, InBatchSampler)
    rows = []
    for size in sizes:
        for label, loss in LOSSES.items():
            error = gradient_error(
                queries.examples,
                queries.vectors,
                scoring,
                _drawer(sampler, queries, size, loss.keeps_hits),
                draws,
                loss.build(context.item_count),
            )
            rows.append({"loss": label, "batch_size": size, **asdict(error)})
    return rows


def _drawer(sampler: InBatchSampler, queries: Queries, size: int, keeps_hits: bool) -> Callable[[int], Draw]:
    """Return `draw_once(n)`: the n-th batch of `size`, the same for every loss."""
    of_size, positives = replace(queries, batch_size=size), queries.examples.positives
    places = torch.arange(len(positives), device=positives.device)

    def draw_once(number: int) -> Draw:
        random = stream(queries.seed, "report in-batch losses", number)
        batch = of_size.batch(random)
        draw = sampler.draw(batch.users, batch.positives, queries.context(batch, random))
        valid = without_accidental_hits(draw.ids, positives)
        valid[:, 0] = False
        of_queries = replace(
            draw,
            valid=valid,
            positive_log_count=sampler.log_expected(batch.users, batch.positives, positives),
            held=(places, torch.zeros_like(places)),
        )
        return of_queries.keeping_hits(positives) if keeps_hits else of_queries

    return draw_once
