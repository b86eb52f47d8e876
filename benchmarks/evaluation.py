"""What a full-ranking evaluation costs beside a bare blocked matrix product with top-k.

gowalla: 29,858 users are ranked over 40,981 items, what each has used is masked, k = 20. Ours computes the
user vectors from histories, scores, masks, picks with a stated order of ties, and measures recall and NDCG;
the bare loop multiplies vectors that it is given, and takes torch's top-k. Both sides take turns; the ratio
is that of their medians.
"""

import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness import Options, peak_memory_mb
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import ColumnSettings, FilesSplit, PrepareConfig
from turret.tower.towers.model import TwoTowers
from turret.training.config.experiment import load_experiment
from turret.training.evaluation.evaluation import Relevant, measure, relevant_items
from turret.training.evaluation.ranking import rank, tower_scores
from turret.training.run import build_model

K, TURNS = 20, 5
BLOCK = 512


def prepared(options: Options, folder: Path) -> PreparedData:
    """gowalla in the published split."""
    source = options.data / "gowalla"
    split = FilesSplit(kind="files", train=source / "train.parquet", test=source / "test.parquet")
    prepare(PrepareConfig(split=split, columns=ColumnSettings(in_file_order=True)), folder)
    return PreparedData.open(folder)


def ours(model: TwoTowers, data: PreparedData, relevant: Relevant) -> float:
    """Seconds of the ranking of all users, with its metrics."""
    start = time.perf_counter()
    scores_of = tower_scores(model, data, "test", data.item_counts("train"))
    ranked = rank(scores_of, data, relevant.users, "test", K, exclude_seen=True)
    measure(ranked, relevant, [K], len(data.item_ids), "ranking")
    return time.perf_counter() - start


@torch.no_grad()
def bare(users: Tensor, items: Tensor) -> float:
    """Seconds of product and top-k of a block of users after the other."""
    start = time.perf_counter()
    for block in torch.split(users, BLOCK):
        (block @ items.T).topk(K)
    return time.perf_counter() - start


def figures(options: Options, folder: Path) -> dict[str, Any]:
    """Both sides in turn, after one turn that is not counted; a quick run takes one fifth of the users."""
    data = prepared(options, folder)
    model = build_model(load_experiment("youtubednn"), data)
    relevant = relevant_items(data, "test")
    if options.quick:
        count = len(relevant.users) // 5
        rows = relevant.rows[: relevant.offsets[count]]
        relevant = Relevant(relevant.users[:count], rows, relevant.offsets[: count + 1])
    random = torch.Generator().manual_seed(0)
    users, items = (torch.randn(n, 64, generator=random) for n in (len(relevant.users), len(data.item_ids)))
    sides = []
    for turn in range(TURNS + 1):
        pair = (ours(model, data, relevant), bare(users, items))
        if turn:
            sides.append(pair)
    mine, theirs = (statistics.median(side) for side in zip(*sides, strict=True))
    ratios = [one / other for one, other in sides]
    return {
        "evaluation_over_bare": mine / theirs,
        "evaluation_over_bare_spread": [min(ratios), max(ratios)],
        "evaluation_seconds": mine,
        "bare_seconds": theirs,
        "evaluation_users": len(relevant.users),
        "evaluation_peak_memory_mb": peak_memory_mb(),
    }
