"""Blanc & Rendle 2018, figure 2: a recommender by each sampler and each m, on the clicks of a news site.

As the article's model for YouTube: the three last items and features of the user go through a network, whose
output is the probability of each item. The clicks of Globo stand in for the data, which is not public: all
46,033 items, and the 10,000 with the most clicks.
"""

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, pad

from benchmarks.harness import Options
from benchmarks.research.estimators import EXACT, Estimate, PaperFigure, Result, Results
from benchmarks.research.sampled_classes import (
    ABSOLUTE,
    EXACT_ABSOLUTE,
    Sizes,
    plot_over_sizes,
    runs_by_size,
    sampler_of,
)
from turret.tower.config import ScoringConfig
from turret.tower.towers.model import cross_scores, signed_or_absolute
from turret.training.losses.catalog import full_softmax
from turret.training.losses.sampled import sampled_softmax
from turret.training.randomness import seed_torch, stream
from turret.training.samplers.core.contract import DrawContext

FEATURES = ("environment", "device_group", "os", "country", "region", "referrer_type")
CLASSES, QUICK_CLASSES = (10_000, 46_033), (1_000, 2_000)
READ, WIDTH, FEATURE_WIDTH, HIDDEN = 3, 64, 8, 128
# The newest examples; the last of them are measured on.
EXAMPLES, MEASURED, QUICK_EXAMPLES = 220_000, 20_000, 4_000
BATCH, EPOCHS, RATE = 256, 3, 2e-3
SIZES: Sizes = {
    EXACT: (0,),
    EXACT_ABSOLUTE: (0,),
    "uniform": (10, 40, 160),
    "quadratic": (10, 40, 160),
    "softmax": (10, 40),
}
SCORED_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class Clicks:
    """Examples by time: the last items [E, 3] (oldest first), features [E, 6], and the next item [E]."""

    classes: int
    items: Tensor
    features: Tensor
    sizes: tuple[int, ...]
    targets: Tensor


@cache
def clicks(folder: Path, classes: int, count: int) -> Clicks:
    """The newest examples, of the clicks on the most clicked items."""
    path = folder / "globo" / "clicks.parquet"
    log = pl.read_parquet(path, columns=["user_id", "item_id", "timestamp_ms", *FEATURES])
    most = log["item_id"].value_counts().sort("count", "item_id", descending=[True, False]).head(classes)
    log = log.join(most.select("item_id").with_row_index("row"), on="item_id", maintain_order="left")
    log = log.filter(pl.col("row").is_not_null()).sort("user_id", "timestamp_ms", maintain_order=True)
    last = [pl.col("row").shift(READ - place).over("user_id").alias(f"last_{place}") for place in range(READ)]
    codes = [pl.col(name).cast(pl.String).cast(pl.Categorical).to_physical().alias(name) for name in FEATURES]
    log = log.with_columns(*last, *(code.fill_null(0) for code in codes)).drop_nulls()
    log = log.sort("timestamp_ms", "user_id", maintain_order=True).tail(count)

    def columns(*names: str) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(log.select(names).to_numpy().astype(np.int64)))

    features = columns(*FEATURES)
    sizes = tuple(int(size) + 1 for size in features.max(dim=0).values)
    items = columns(*(f"last_{place}" for place in range(READ)))
    return Clicks(classes, items, features, sizes, columns("row")[:, 0])


class Network(nn.Module):
    """Three item vectors and the features through a hidden layer to a query; items have vectors of output.

    The query has a constant 1 behind, so the last column of `output` [N, D + 1] is a bias.
    """

    def __init__(self, data: Clicks, absolute: bool) -> None:
        """Start from seed 0."""
        super().__init__()
        seed_torch(0, "next click", 0)
        self.scoring = ScoringConfig(kind="dot", temperature=1.0, absolute=absolute)
        self.items = nn.Embedding(data.classes, WIDTH, sparse=True)
        self.features = nn.ModuleList(nn.Embedding(size, FEATURE_WIDTH) for size in data.sizes)
        inputs = READ * WIDTH + len(data.sizes) * FEATURE_WIDTH
        self.layers = nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))
        self.output = nn.Parameter(0.05 * torch.randn(data.classes, WIDTH + 1))
        nn.init.normal_(self.items.weight, std=0.05)

    def forward(self, items: Tensor, features: Tensor) -> Tensor:
        """Queries [B, D + 1]."""
        own = [layer(features[:, place]) for place, layer in enumerate(self.features)]
        return pad(self.layers(torch.cat([self.items(items).flatten(1), *own], dim=1)), (0, 1), value=1.0)

    def scores(self, queries: Tensor, ids: Tensor) -> Tensor:
        """The scores [B, K] of items [B, K], whose gradient has their rows alone."""
        products = torch.einsum("bd,bkd->bk", queries, embedding(ids, self.output, sparse=True))
        return signed_or_absolute(products, self.scoring)

    def vectors(self, ids: Tensor) -> Tensor:
        """The scored vectors of items, without a gradient."""
        return self.output.detach()[ids]


def trained(folder: Path, quick: bool, classes: int, kind: str, size: int) -> Result:
    """The cross-entropy of the newest clicks after each epoch, by the softmax of all items."""
    count = QUICK_EXAMPLES if quick else EXAMPLES
    data = clicks(folder, classes, count)
    cut = len(data.targets) - min(MEASURED, count // 4)
    model = Network(data, kind in ABSOLUTE)
    sampler = sampler_of(kind, size, np.bincount(data.targets[:cut], minlength=classes)) if size else None
    if sampler is not None:
        sampler.refresh(model.output.detach())
    sparse = [model.items.weight, *([model.output] if sampler else [])]
    are_sparse = set(map(id, sparse))
    optimisers = [
        torch.optim.SparseAdam(sparse, RATE),
        torch.optim.Adam([one for one in model.parameters() if id(one) not in are_sparse], RATE, fused=True),
    ]
    random, losses = stream(0, "draw", 0), list[float]()
    for epoch in range(1 if quick else EPOCHS):
        order = torch.from_numpy(stream(0, "order", epoch).permutation(cut))
        for batch in torch.split(order, BATCH):
            queries, targets = model(data.items[batch], data.features[batch]), data.targets[batch]
            if sampler is None:
                loss = full_softmax(cross_scores(queries, model.output, model.scoring), targets)
            else:
                own = model.scores(queries, targets[:, None])[:, 0]
                context = DrawContext(random, targets, model.vectors(targets), model.vectors)
                estimate = Estimate(sampled_softmax, sampler)
                loss = estimate.losses(
                    queries.detach(), targets, own, partial(model.scores, queries), context
                )
            for optimiser in optimisers:
                optimiser.zero_grad()
            torch.autograd.backward(loss.mean())
            for optimiser in optimisers:
                optimiser.step()
            if sampler is not None:
                sampler.update(model.vectors)
        losses.append(cross_entropy(model, data, cut))
    return {"classes": classes, "sampler": kind, "m": size, "cross_entropy": losses, "examples": cut}


@torch.no_grad()
def cross_entropy(model: Network, data: Clicks, first: int) -> float:
    """The mean over the examples from `first` on."""
    total, rows = 0.0, torch.arange(first, len(data.targets))
    for some in torch.split(rows, max(1, SCORED_AT_ONCE // data.classes)):
        queries = model(data.items[some], data.features[some])
        scores = cross_scores(queries, model.output, model.scoring)
        total += float(full_softmax(scores, data.targets[some]).sum())
    return total / len(rows)


def runs(options: Options) -> dict[str, partial[Result]]:
    """For both catalogs both full softmaxes, and each sampler at each m."""
    return {
        f"{classes:,} items: {name}": run
        for classes in (QUICK_CLASSES if options.quick else CLASSES)
        for name, run in runs_by_size(partial(trained, options.data, options.quick, classes), SIZES).items()
    }


def plot(results: Results, path: Path) -> None:
    """The last cross-entropy over m, a curve a sampler, a panel a catalog."""
    panels = {
        f"{classes:,} items": [run for run in results.values() if run["classes"] == classes]
        for classes in CLASSES
    }
    plot_over_sizes(panels, "cross_entropy", "cross-entropy of the next click", path, "linear")


FIGURE = PaperFigure("next_click", runs, plot)
