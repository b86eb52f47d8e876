"""Losses over the catalog: formulas written out, clusters and trees, buckets, factored steps."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.oracles import catalog_losses as catalog_oracle
from tests.oracles import losses as oracle
from tests.training.conftest import trained
from turret.data.prepared import PreparedData
from turret.tower.config import ScoringConfig
from turret.tower.towers.model import TwoTowers
from turret.training import commands, losses
from turret.training.batches.batches import Batch
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import evaluate
from turret.training.losses.catalog import (
    BucketedObjective,
    CatalogLossSettings,
    CatalogObjective,
    ScalableCrossEntropyConfig,
    full_softmax,
)
from turret.training.losses.hierarchical import (
    HierarchicalObjective,
    HuffmanObjective,
    frequency_clusters,
    hierarchical_softmax,
    huffman_paths,
    tree_softmax,
)
from turret.training.losses.loss import settings_of
from turret.training.model_loss import build_objective, model_loss
from turret.training.objectives.contract import Objective
from turret.training.randomness import stream
from turret.training.run import MODEL, Run, build_model

SCORES = torch.tensor([[1.3, -0.4, 2.1, 0.2, -1.7], [0.0, 3.0, -3.0, 0.5, 0.1]], dtype=torch.float64)
POSITIVES = torch.tensor([4, 0])


@pytest.mark.parametrize("epsilon", [None, 0.01, 1.0])
def test_losses_over_all_scores_agree_with_their_formulas_written_out(epsilon: float | None) -> None:
    loss = losses.full_softmax() if epsilon is None else losses.spherical_softmax(epsilon=epsilon)
    assert isinstance(loss, CatalogLossSettings)
    found = loss.build()(SCORES, POSITIVES)
    for line, positive in enumerate(POSITIVES.tolist()):
        row = SCORES[line]
        if epsilon is None:
            expected = oracle.full(row.numpy(), positive)
        else:
            expected = oracle.spherical_softmax(row.tolist(), positive, epsilon)
        assert found[line].item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_extreme_scores_of_clusters_and_trees_stay_finite(size: float) -> None:
    scores = torch.tensor([[size, 0.0, -size]], requires_grad=True)
    for given, loss in (
        (scores, hierarchical_softmax(scores, torch.tensor([0]), scores, torch.tensor([2]))),
        (scores, tree_softmax(scores, torch.tensor([[1.0, -1.0, 1.0]]))),
    ):
        (gradient,) = torch.autograd.grad(loss.sum(), given)
        assert loss.isfinite().all()
        assert gradient.isfinite().all()


@pytest.fixture
def model(shop: PreparedData) -> TwoTowers:
    return build_model(ExperimentConfig.model_validate({"tower": {"scoring": MILD}}), shop).eval()


MILD = {"kind": "cosine", "temperature": 0.5}


@pytest.mark.parametrize("clusters", [1, 7, 14, 192])
@pytest.mark.parametrize("absolute", [False, True])
def test_the_objective_of_clusters_is_that_of_plain_loops(
    shop: PreparedData, model: TwoTowers, batch: Batch, clusters: int, absolute: bool
) -> None:
    """One example and one item at a time, for one cluster, uneven ones, and one for each item."""
    scoring = ScoringConfig.model_validate({**MILD, "absolute": absolute})
    model.config = model.config.model_copy(update={"scoring": scoring})
    made = HierarchicalObjective(frequency_clusters(shop.item_counts(), clusters), 64, stream(0, "c", 0))
    items = model.catalog_vectors().detach()
    users = model.user_vectors(batch.histories, items[batch.histories.rows]).detach()
    centres = torch.nn.functional.normalize(made.cluster_vectors.detach(), dim=1)
    scored = (users @ torch.cat([centres, items]).T / 0.5).double()
    scored = scored.abs() if absolute else scored
    members = [[row for row in rows if row >= 0] for rows in made.members.tolist()]
    of = {row: (c, position) for c, rows in enumerate(members) for position, row in enumerate(rows)}
    weights = torch.arange(1.0, len(batch.targets) + 1)
    total = 0.0
    for line, target, weight in zip(scored.tolist(), batch.targets.tolist(), weights.tolist(), strict=True):
        scores = [[line[clusters + row] for row in rows] for rows in members]
        total -= weight * math.log(catalog_oracle.two_stage_probability(line[:clusters], scores, *of[target]))
    out = model_loss(made, model, replace(batch, weights=weights), stream(0, "draw", 0))
    assert out.loss.item() == pytest.approx(total / float(weights.sum()), rel=1e-4)
    assert int(out.masked) == 0


@pytest.fixture(scope="module")
def run_of_clusters(shop: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Run:
    training = {"epochs": 3, "batch_size": 256, "device": "cpu", "learning_rate": 1e-2}
    settings = {"objective": {"loss": "hierarchical_softmax"}, "training": training}
    experiment = ExperimentConfig.model_validate(settings)
    return trained(tmp_path_factory.mktemp("hierarchical") / "run", shop, experiment)[0]


def test_a_run_is_evaluated_by_its_own_log_p(
    run_of_clusters: Run, shop: PreparedData, capsys: pytest.CaptureFixture[str]
) -> None:
    """The clusters' vectors are kept with the best model, and the inner product alone ranks otherwise."""
    stored = load_file(run_of_clusters.folder / MODEL)
    assert stored["objective.cluster_vectors"].shape == (14, 64)
    commands.evaluate_command(run_of_clusters.folder, None, "validation", as_json=True)
    capsys.readouterr()
    report = run_of_clusters.metrics()["validation"]
    config = run_of_clusters.experiment.evaluation
    products = evaluate(run_of_clusters.open_model(shop), shop, "validation", config)
    assert report["towers"]["ndcg@10"]["mean"] != products["towers"]["ndcg@10"]["mean"]


def test_it_can_not_be_exported(run_of_clusters: Run, tmp_path: Path) -> None:
    with pytest.raises(
        TrainingError, match=r"'hierarchical_softmax' does not rank.*no index.*'full_softmax'"
    ) as refused:
        commands.export_run(run_of_clusters.folder, None, tmp_path / "bundles", None)
    assert str(run_of_clusters.folder) in str(refused.value)
    assert not (tmp_path / "bundles").exists()


TREES = [
    [7],
    [3, 1],
    [1, 1, 1, 1],
    [0, 0, 0, 0, 0, 0, 0, 0, 5],
    [1, 2, 4, 8, 16, 32, 64],
    [45, 13, 12, 16, 9, 5],
]


def path_of(paths: tuple[Tensor, Tensor], item: int) -> list[tuple[int, int]]:
    pairs = zip(paths[0][item].tolist(), paths[1][item].tolist(), strict=True)
    return [(node, int(sign)) for node, sign in pairs if sign]


@pytest.mark.parametrize("counts", TREES, ids=str)
def test_no_tree_has_shorter_paths(counts: list[int]) -> None:
    """The mean length under the counts is the least, no path is the beginning of another, nodes are N - 1."""
    paths = huffman_paths(np.array(counts))
    depths = [len(path_of(paths, item)) for item in range(len(counts))]
    assert sum(
        count * depth for count, depth in zip(counts, depths, strict=True)
    ) == catalog_oracle.least_cost(counts)
    assert sum(2.0**-depth for depth in depths) == 1.0
    ways = [tuple(reversed(path_of(paths, item))) for item in range(len(counts))]
    assert len({way[: len(short)] for short in ways for way in ways if way == short}) == len(ways)
    nodes, signs = paths
    assert sorted(set(nodes[signs != 0.0].tolist())) == list(range(len(counts) - 1))
    assert (nodes[signs == 0.0] == -1).all()


def test_the_objective_of_a_tree_is_that_of_plain_loops(
    shop: PreparedData, model: TwoTowers, batch: Batch
) -> None:
    """One example at a time, under its weight; and items are ranked by the same log p, which sums to one."""
    loss = losses.hierarchical_softmax(tree="huffman").model_dump()
    config = ExperimentConfig.model_validate({"tower": model.config, "objective": {"loss": loss}})
    made = build_objective(config, shop, torch.device("cpu"))
    assert isinstance(made, HuffmanObjective)
    users = model.user_vectors(batch.histories, model.catalog_vectors()[batch.histories.rows]).detach()
    nodes = torch.nn.functional.normalize(made.node_vectors.detach(), dim=1)
    scored = (users @ nodes.T / 0.5).double().tolist()
    paths, weights = (made.nodes, made.signs), torch.arange(1.0, len(batch.targets) + 1)
    total = 0.0
    for line, target, weight in zip(scored, batch.targets.tolist(), weights.tolist(), strict=True):
        total -= weight * math.log(catalog_oracle.path_probability(line, path_of(paths, target)))
    out = model_loss(made, model, replace(batch, weights=weights), stream(0, "draw", 0))
    assert out.loss.item() == pytest.approx(total / float(weights.sum()), rel=1e-4)
    log_p: Tensor = made.scores(users, model.catalog_vectors(), ScoringConfig.model_validate(MILD)).detach()
    torch.testing.assert_close(log_p.exp().sum(dim=1), torch.ones(len(users)))
    expected = catalog_oracle.path_probability(scored[3], path_of(paths, 11))
    assert float(log_p[3, 11].exp()) == pytest.approx(expected, rel=1e-4)


@pytest.fixture(params=[False, True], ids=["signed", "absolute"])
def either(shop: PreparedData, request: pytest.FixtureRequest) -> TwoTowers:
    scoring = {"kind": "cosine", "temperature": 0.2, "absolute": request.param}
    return build_model(ExperimentConfig.model_validate({"tower": {"scoring": scoring}}), shop).eval()


def of_buckets(
    either: TwoTowers, buckets: int, examples: int, items: int, mask_seen: bool = False
) -> BucketedObjective:
    config = ScalableCrossEntropyConfig(
        kind="scalable_cross_entropy", buckets=buckets, bucket_examples=examples, bucket_items=items
    )
    return BucketedObjective(config, either.item.item_count, mask_seen)


def gradients(made: Objective, either: TwoTowers, batch: Batch) -> tuple[float, int, list[Tensor]]:
    either.zero_grad()
    out = model_loss(made, either, batch, stream(0, "draw", 0))
    torch.autograd.backward(out.loss)
    return (out.loss.item(), int(out.masked), [p.grad for p in either.parameters() if p.grad is not None])


@pytest.mark.parametrize("mask_known", [False, True], ids=["all", "known masked"])
def test_an_objective_with_one_bucket_of_everything_is_the_full_softmax(
    either: TwoTowers, batch: Batch, mask_known: bool
) -> None:
    """Sizes beyond the batch and the catalog take all there is; value and gradient of both towers agree."""
    batch = replace(batch, weights=torch.arange(1.0, len(batch.targets) + 1))
    everything = of_buckets(either, 1, 1000, 1000, mask_known)
    value, masked, ours = gradients(everything, either, batch)
    full, known, theirs = gradients(CatalogObjective(settings_of(full_softmax)(), mask_known), either, batch)
    assert value == pytest.approx(full, rel=1e-5)
    assert masked == known + len(batch.targets), "each example's own positive is masked beside the known"
    assert len(ours) == len(theirs) == len(list(either.parameters()))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


def projections(either: TwoTowers, batch: Batch, buckets: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scores [B, N], and how far examples and items lie along the directions: [G, B] and [G, N]."""
    items = either.catalog_vectors().detach()
    users = either.user_vectors(batch.histories, items[batch.histories.rows]).detach()
    mixture = stream(0, "draw", 0).standard_normal((buckets, len(users)), dtype="float32")
    directions = torch.tensor(mixture) @ users
    found = (users @ items.T / 0.2, directions @ users.T, directions @ items.T)
    if either.config.scoring.absolute:
        return found[0].abs(), found[1].abs(), found[2].abs()
    return found


def test_buckets_hold_what_lies_furthest_along_mixtures_of_users(either: TwoTowers, batch: Batch) -> None:
    """The loss is that of plain loops over those buckets; examples in none do not count."""
    scores, of_users, of_items = projections(either, batch, 5)
    buckets = [
        (sorted(catalog_oracle.largest(mine, 7)), sorted(catalog_oracle.largest(theirs, 20)))
        for mine, theirs in zip(of_users.tolist(), of_items.tolist(), strict=True)
    ]
    expected_in_buckets = catalog_oracle.bucketed_losses(scores.tolist(), batch.targets.tolist(), buckets)
    weights = torch.arange(1.0, len(batch.targets) + 1)
    placed = [
        (w, value)
        for w, value in zip(weights.tolist(), expected_in_buckets, strict=True)
        if value is not None
    ]
    assert 7 < len(placed) < len(batch.targets), "some examples must be in no bucket, some in several"
    few, weighted = of_buckets(either, 5, 7, 20), replace(batch, weights=weights)
    out = model_loss(few, either, weighted, stream(0, "draw", 0))
    mean = sum(w * value for w, value in placed) / sum(w for w, _ in placed)
    assert out.loss.item() == pytest.approx(mean, rel=1e-4)
