"""Why the absolute softmax ends above the signed one: one small model under single changes.

By a footnote of Blanc & Rendle 2018 it loses nothing; in the model of `sampler_bias` it does.
Every training here is of that model by the full softmax, on MovieLens 100K, whose whole run takes a minute or
two. The changes are made with both scorings:

- `longer`: twice the examples.
- `wide`: vectors twice as wide, in case a missing sign takes dimensions.
- `biased`: an item's bias is added inside the absolute value.
- `own inputs`: the history is read from a table of its own. Otherwise it is made of the vectors that are
  scored, and two items that the absolute score holds for alike, w and -w, cancel in its mean.
- `aligned`: one coordinate begins at the same value for all items and users, so all scores begin positive.
  Otherwise the first gradient's sign is arbitrary, and about half of the items begin on the negative side.

Beside the cross entropy there is the share of held-out targets, and of items by their mean over users, whose
score is negative before its absolute value is taken.
"""

import json
import math
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.harness import Options, run
from benchmarks.research.sampler_trainings import (
    BATCH,
    RATE,
    SHOP,
    WIDTH,
    Case,
    batches_of,
    experiment,
    prepare_events,
)
from turret.data.prepared import PreparedData
from turret.tower.layers.packed import PackedHistories
from turret.training.evaluation.ranking import histories_of
from turret.training.losses.catalog import full_softmax
from turret.training.run import build_model

CASE = Case("ml-100k", "ratings.parquet", False, 200_000)
SEED = 0
ALIGNED = 1.0  # several deviations of the scores of an untrained model


@dataclass(frozen=True)
class Variant:
    """A model and its changes."""

    absolute: bool
    longer: bool = False
    wide: bool = False
    biased: bool = False
    own_inputs: bool = False
    aligned: bool = False


CHANGES: tuple[dict[str, bool], ...] = (
    {},
    {"longer": True},
    {"wide": True},
    {"biased": True},
    {"own_inputs": True},
    {"aligned": True},
    {"own_inputs": True, "aligned": True},
)
VARIANTS = tuple(Variant(absolute, **change) for change in CHANGES for absolute in (True, False))


class Scores(nn.Module):
    """The two towers of a variant."""

    def __init__(self, variant: Variant, data: PreparedData) -> None:
        super().__init__()
        width = 2 * WIDTH if variant.wide else WIDTH
        self.towers = build_model(experiment(variant.absolute, SEED, width), data)
        self.biases = nn.Parameter(torch.zeros(len(data.item_ids)), requires_grad=variant.biased)
        table = self.towers.catalog_vectors().detach().clone()
        self.inputs = nn.Parameter(table) if variant.own_inputs else None
        if variant.aligned:
            self._align()

    @torch.no_grad()
    def _align(self) -> None:
        """Move the first coordinate of all items and users up."""
        weight, last = self.towers.item.get_parameter("table.weight"), None
        for module in self.towers.user.modules():
            last = module if isinstance(module, nn.Linear) else last
        assert last is not None
        weight[:, 0] += ALIGNED
        last.bias[0] += ALIGNED

    def forward(self, histories: PackedHistories) -> Tensor:
        """The scores [B, N] before any absolute value."""
        vectors = self.towers.catalog_vectors()
        read = vectors if self.inputs is None else self.inputs
        users = self.towers.user_vectors(histories, read[histories.rows])
        return users @ vectors.T + self.biases


def train(scores: Scores, variant: Variant, data: PreparedData, steps: int) -> None:
    """As `sampler_trainings.train`, by the full softmax."""
    optimiser = torch.optim.Adam(scores.parameters(), lr=RATE, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for batch in batches_of(data, steps, SEED):
        optimiser.zero_grad()
        found = scores(batch.histories)
        loss = full_softmax(found.abs() if variant.absolute else found, batch.targets).mean()
        torch.autograd.backward(loss)
        optimiser.step()
        schedule.step()


@torch.no_grad()
def figures(scores: Scores, variant: Variant, data: PreparedData) -> dict[str, float]:
    """Cross entropy, perplexity and shares of negative scores, on the validation item of each user."""
    starts, ends = (np.asarray(bound) for bound in data.bounds("validation"))
    users = np.flatnonzero(ends > starts)
    targets = torch.from_numpy(data.event_items[starts[users]].astype(np.int64))
    losses, of_targets, sums = [], [], torch.zeros(len(data.item_ids))
    for first in range(0, len(users), BATCH):
        block = slice(first, first + BATCH)
        found = scores(
            histories_of(data, users[block], "validation", scores.towers.config.user.history_length)
        )
        losses.append(full_softmax(found.abs() if variant.absolute else found, targets[block]))
        of_targets.append(found.gather(1, targets[block, None]) < 0.0)
        sums += found.sum(dim=0)
    reached = float(torch.cat(losses).mean())
    return {
        "cross_entropy": reached,
        "perplexity": math.exp(reached),
        "negative_targets": float(torch.cat(of_targets).float().mean()),
        "negative_items": float((sums < 0.0).float().mean()),
    }


def measure(options: Options) -> dict[str, Any]:
    """Every variant, its figures on standard error as it ends."""
    torch.set_num_threads(1)
    case = replace(SHOP, examples=10_000) if options.quick else CASE
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        prepare_events(case, options.data, Path(folder))
        data = PreparedData.open(Path(folder) / case.name)
        for variant in VARIANTS:
            scores = Scores(variant, data)
            train(scores, variant, data, (1 + variant.longer) * case.examples // BATCH)
            rows.append({**asdict(variant), **figures(scores.eval(), variant, data)})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return {"set": case.name, "examples": case.examples, "seed": SEED, "rows": rows}


if __name__ == "__main__":
    run(measure)
