"""Labelled pairs, given negatives, and several positives of a user vector, against torch and plain loops."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.tower.layers.packed import PackedHistories
from turret.tower.towers.model import TwoTowers
from turret.training import Estimator, GivenNegatives, losses, samplers
from turret.training.batches.batches import TrainingBatches
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import TrainingError
from turret.training.model_loss import build_objective, model_loss
from turret.training.randomness import stream
from turret.training.run import build_model
from turret.training.samplers.core.contract import DrawContext

CATALOG, WIDTH = 20, 6
ROWS = torch.tensor([3, 4, 5, 9])
LABELS = torch.tensor([1, 0, 1, 0])
WEIGHTS = torch.tensor([1.0, 2.0, 0.5, 1.0], dtype=torch.float64)
NEGATIVES = torch.tensor([[1, 2, 7], [0, -1, -1], [5, 8, 11], [12, 13, -1]])


def vectors(count: int, seed: int) -> Tensor:
    return torch.randn(count, WIDTH, generator=torch.manual_seed(seed), dtype=torch.float64)


def users() -> Tensor:
    return vectors(4, 0).requires_grad_()


def items() -> Tensor:
    return vectors(CATALOG, 1)


def mean(values: Tensor) -> Tensor:
    return (values * WEIGHTS).sum() / WEIGHTS.sum()


def made(loss: Any, **scoring: Any) -> Estimator:
    return Estimator(loss, GivenNegatives(), items=CATALOG, **scoring)


@pytest.mark.parametrize("labels", [LABELS, 2 * LABELS - 1], ids=["zero and one", "minus and plus one"])
def test_binary_cross_entropy_of_pairs_is_that_of_torch(labels: Tensor) -> None:
    """Value and gradient, with either form of labels, which mean the same."""
    ours, theirs = users(), users()
    loss = made(losses.binary_cross_entropy(), temperature=0.5).pairs(
        ours, ROWS, labels, items().__getitem__, WEIGHTS
    )
    logits = (theirs * items()[ROWS]).sum(dim=1) / 0.5
    expected = mean(nn.BCEWithLogitsLoss(reduction="none")(logits, LABELS.double()))
    torch.testing.assert_close(loss.loss, expected)
    gradients = torch.autograd.grad(loss.loss, ours), torch.autograd.grad(expected, theirs)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(
    "kind", ["binary_cross_entropy", "cosine_embedding", "ranking", "sampled_softmax", "gbce"]
)
def test_given_negatives_train_losses_over_a_draw(kind: str) -> None:
    """Absent negatives and the positive itself leave no trace, and the others do."""
    estimate = made(getattr(losses, kind)(), cosine=True)

    def loss(negatives: Tensor) -> Tensor:
        out: Tensor = estimate(users(), ROWS, items().__getitem__, negatives=negatives).loss
        return out

    absent = torch.where(ROWS[:, None] == NEGATIVES, -1, NEGATIVES)
    torch.testing.assert_close(loss(NEGATIVES), loss(absent))
    assert loss(NEGATIVES) != loss(NEGATIVES.roll(1, dims=0))


@pytest.mark.parametrize(
    ("loss", "labels", "sentence"),
    [
        (losses.binary_cross_entropy(), [1, 2, 0, 1], "labels have the values 0, 1, 2"),
        (losses.binary_cross_entropy(), [1, -1, 0, 1], "-1 and"),
        (losses.binary_cross_entropy(), [1, 0], "each of 4 pairs"),
        (losses.ranking(), [1, 0, 1, 0], "give each positive negatives"),
    ],
)
def test_pairs_without_a_loss_are_refused(loss: Any, labels: list[int], sentence: str) -> None:
    """By their labels, or by a loss that compares."""
    with pytest.raises(TrainingError, match=sentence):
        made(loss).pairs(users(), ROWS, torch.tensor(labels), items().__getitem__)


def test_negatives_that_are_missing_or_nobody_reads_are_refused() -> None:
    drawing = Estimator(losses.ranking(), samplers.uniform(), items=CATALOG)
    for estimate, negatives, sentence in (
        (made(losses.ranking()), None, "give the step its negatives"),
        (made(losses.ranking()), NEGATIVES[:2], r"give \[B, D\] and \[B, K\]"),
        (drawing, NEGATIVES, "only GivenNegatives reads negatives"),
    ):
        with pytest.raises(TrainingError, match=sentence):
            estimate(users(), ROWS, items().__getitem__, negatives=negatives)


# User, item, time, label and weight. All of it is training: the test file has a user of its own.
LOG = [
    ("a", "x", 1, 1, 1.0),
    ("a", "q", 2, 0, 9.0),  # offered beside y
    ("a", "y", 2, 1, 2.0),
    ("a", "x", 3, 0, 0.5),  # used before, and not again
    ("a", "p", 3, 0, 3.0),
    ("a", "z", 4, 1, 1.0),
    ("b", "z", 1, 1, 1.0),
    ("b", "x", 5, 1, 4.0),  # chosen without an alternative
    ("b", "p", 6, 0, 2.0),
    ("b", "q", 7, 1, 1.0),
    ("b", "y", 8, 0, 5.0),  # after the last event, so of none
]
TEST = [("c", "x", 1, 1, 1.0), ("c", "y", 2, 0, 1.0), ("c", "z", 3, 1, 1.0)]
# Every target: what it reads, the positive, its weight, and each negative with its weight.
EXAMPLES: list[tuple[str, str, float, list[tuple[str, float]]]] = [
    ("x", "y", 2.0, [("q", 9.0)]),
    ("xy", "z", 1.0, [("x", 0.5), ("p", 3.0)]),
    ("z", "x", 4.0, []),
    ("zx", "q", 1.0, [("p", 2.0)]),
]


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepared(tmp_path_factory.mktemp("labelled"), LOG, TEST)


def prepared(folder: Path, train: list[Any], test: list[Any]) -> PreparedData:
    for name, rows in {"train": train, "test": test}.items():
        lines = [",".join(map(str, row)) for row in rows]
        (folder / f"{name}.csv").write_text("\n".join(["user,item,time,label,weight", *lines]))
    files = {name: folder / f"{name}.csv" for name in ("train", "test")}
    split = {"kind": "files", **files, "validation_fraction": 0.0}
    config = {"columns": {"label": "label", "weight": "weight"}, "split": split}
    prepare(PrepareConfig.model_validate(config), folder / "prepared")
    return PreparedData.open(folder / "prepared")


def experiment(objective: dict[str, Any], cosine: bool) -> ExperimentConfig:
    scoring = {"kind": "cosine", "temperature": 1.0} if cosine else {"kind": "dot", "temperature": 0.5}
    user = {"kind": "pooled", "dropout": 0.0, "hidden": []}
    return ExperimentConfig.model_validate(
        {"tower": {"dimension": 8, "scoring": scoring, "user": user}, "objective": objective}
    )


@dataclass(frozen=True)
class Model:
    """Towers in float64, with the unscored vectors of users and items by the ids of the log."""

    towers: TwoTowers
    data: PreparedData

    def items(self, ids: str) -> Tensor:
        rows, _ = self.data.item_ids.known_rows(list(ids))
        return self.towers.item_vectors(torch.from_numpy(rows).long())

    def user(self, history: str) -> Tensor:
        rows, _ = self.data.item_ids.known_rows(list(history))
        packed = PackedHistories(
            rows=torch.from_numpy(rows).long(),
            starts=torch.tensor([0]),
            ends=torch.tensor([len(history)]),
            users=torch.tensor([0]),
            ages=torch.zeros(1, dtype=torch.float64),
        )
        return self.towers.user_vectors(packed, self.items(history))[0]

    def scores(self, history: str, ids: str) -> Tensor:
        return self.items(ids) @ self.user(history) / self.towers.config.scoring.temperature


def labels_and_weights(model: Model) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, labels of 0 and 1, and weights of all pairs."""
    scores, labels, weights = [], [], []
    for history, positive, weight, negatives in EXAMPLES:
        scores.append(model.scores(history, "".join([positive, *(item for item, _ in negatives)])))
        labels += [1.0, *(0.0 for _ in negatives)]
        weights += [weight, *(of_negative for _, of_negative in negatives)]
    return (
        torch.cat(scores),
        torch.tensor(labels, dtype=torch.float64),
        torch.tensor(weights, dtype=torch.float64),
    )


def pairwise_cross_entropy(model: Model) -> Tensor:
    scores, labels, weights = labels_and_weights(model)
    losses: Tensor = nn.BCEWithLogitsLoss(weight=weights, reduction="none")(scores, labels)
    return losses.sum() / weights.sum()


def cosine_embedding(model: Model) -> Tensor:
    _, labels, weights = labels_and_weights(model)
    pairs = [
        (model.user(history), model.items(item)[0])
        for history, positive, _, negatives in EXAMPLES
        for item in (positive, *(item for item, _ in negatives))
    ]
    users, items = (torch.stack(side) for side in zip(*pairs, strict=True))
    losses: Tensor = nn.CosineEmbeddingLoss(reduction="none")(users, items, 2 * labels - 1)
    return (losses * weights).sum() / weights.sum()


def triplets(model: Model) -> Tensor:
    """Each example's mean over its triples; a distance of 1 - cos makes torch's triplet loss the hinge."""

    def distance(one: Tensor, other: Tensor) -> Tensor:
        return 1.0 - cosine_similarity(one, other, dim=-1)

    theirs = nn.TripletMarginWithDistanceLoss(distance_function=distance, margin=0.4)
    total, weights = torch.zeros((), dtype=torch.float64), 0.0
    for history, positive, weight, negatives in EXAMPLES:
        weights += weight
        if negatives:
            others = model.items("".join(item for item, _ in negatives))
            users = model.user(history).expand(len(others), -1)
            total = total + weight * theirs(users, model.items(positive).expand(len(others), -1), others)
    return total / weights


HINGE = {"loss": {"kind": "cosine_hinge", "margin": 0.4}, "candidates": "given"}
CASES: dict[str, tuple[dict[str, Any], bool, Callable[[Model], Tensor]]] = {
    "binary cross-entropy": (
        {"loss": "binary_cross_entropy", "candidates": "labelled"},
        False,
        pairwise_cross_entropy,
    ),
    "cosine embedding": ({"loss": "cosine_embedding", "candidates": "labelled"}, True, cosine_embedding),
    "hinge as torch's triplet loss": (HINGE, True, triplets),
}


@pytest.mark.parametrize("case", CASES)
def test_the_loss_of_a_labelled_log_and_its_gradient_are_those_of_torch(
    labelled: PreparedData, case: str
) -> None:
    """Of every parameter of both towers, in float64."""
    objective, cosine, expected = CASES[case]
    settings = experiment(objective, cosine)
    towers = build_model(settings, labelled).double()
    (batch,) = TrainingBatches.of(settings, labelled).epoch(stream(0, "order", 0))
    built = build_objective(settings, labelled, torch.device("cpu"))
    ours = model_loss(built, towers, batch, stream(0, "draw", 0)).loss
    theirs = expected(Model(towers, labelled))
    parameters = [part for part in towers.parameters() if part.requires_grad]
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-6, atol=1e-9)  # weights are float32
    gradients = [torch.autograd.grad(loss, parameters, allow_unused=True) for loss in (ours, theirs)]
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("candidates", ["given", "labelled"])
def test_data_without_negatives_is_refused(handmade: PreparedData, tmp_path: Path, candidates: str) -> None:
    settings = experiment({"loss": "binary_cross_entropy", "candidates": candidates}, cosine=False)

    def build(data: PreparedData) -> None:
        build_objective(settings, data, torch.device("cpu"))

    with pytest.raises(TrainingError, match=r"has none; prepare the data with --label or --negatives"):
        build(handmade)
    plain = [row for row in LOG if row[3]]
    with pytest.raises(TrainingError, match=r"no training event of .* has a negative"):
        build(prepared(tmp_path, plain, TEST))


POSITIVES = torch.tensor([[0, 3, 7], [5, 1, 2], [4, 0, 9]])
TARGETS = torch.tensor([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0], [0.25, 0.0, 0.75]])
COUNTS = torch.tensor([90, 40, 30, 20, 10, 9, 8, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1])


def estimator(loss: Any, sampler: Any = None) -> Estimator:
    return Estimator(loss, sampler, items=CATALOG, counts=COUNTS, temperature=0.8)


def result(estimate: Estimator, targets: Tensor | None = TARGETS, weights: Tensor | None = None) -> float:
    items = vectors(CATALOG, 1)
    if estimate.sampler is not None:
        estimate.refresh(items.float().__getitem__)
    return float(estimate(vectors(3, 0), POSITIVES, items.__getitem__, targets=targets, weights=weights).loss)


def distribution() -> Tensor:
    """The targets over the catalog."""
    return torch.zeros(3, CATALOG, dtype=torch.float64).scatter_add(1, POSITIVES, TARGETS.double())


def scores() -> Tensor:
    return vectors(3, 0) @ vectors(CATALOG, 1).T / 0.8


@pytest.mark.parametrize(
    ("loss", "sampler"),
    [
        ("full_softmax", None),
        # Every item is in the draw with probability one, so that nothing is estimated.
        ("sampled_softmax", samplers.bernoulli(negatives=CATALOG)),
        ("sampled_softmax_corrected", samplers.bernoulli(negatives=CATALOG)),
        ("subset_softmax", samplers.bernoulli(negatives=CATALOG)),
    ],
)
def test_over_the_whole_catalog_it_is_the_cross_entropy_of_a_distribution(loss: str, sampler: Any) -> None:
    expected = cross_entropy(scores(), distribution(), reduction="none")
    estimate = estimator(getattr(losses, loss)(), sampler)
    assert result(estimate) == pytest.approx(float(expected.mean()), rel=1e-6)
    weights = torch.tensor([1.0, 4.0, 0.5], dtype=torch.float64)
    weighted = float((expected * weights).sum() / weights.sum())
    assert result(estimate, weights=weights) == pytest.approx(weighted, rel=1e-6)


def of_draw(loss: str, estimate: Estimator) -> float:
    """The formula written out over the draw of the first step, one positive at a time."""
    users = [b for b in range(3) for t in range(3) if TARGETS[b, t] > 0]
    items = [int(POSITIVES[b, t]) for b in range(3) for t in range(3) if TARGETS[b, t] > 0]
    shares = [float(TARGETS[b, t]) for b in range(3) for t in range(3) if TARGETS[b, t] > 0]
    assert estimate.sampler is not None
    rows = torch.tensor(items)
    context = DrawContext(
        stream(0, "draw", 0), rows * 0, torch.zeros(len(rows), WIDTH), vectors(CATALOG, 1).__getitem__
    )
    draw = estimate.sampler.draw((vectors(3, 0)[users]).float(), rows, context)
    ids, counts = draw.ids.expand(len(rows), -1), draw.log_count.expand(len(rows), -1).double().exp()
    own, total = draw.positive_log_count.double().exp(), 0.0
    for n, (b, y) in enumerate(zip(users, items, strict=True)):
        s = scores()[b]
        known = [m for m, owner in enumerate(users) if owner == b]
        mine = {items[m] for m in known}
        drawn = [(int(i), float(count)) for i, count in zip(ids[n], counts[n], strict=True)]
        fresh = [(i, count) for i, count in drawn if i not in mine]
        rest = sum(math.exp(s[i]) / count for i, count in fresh)
        if loss == "sampled_softmax":
            value = math.log(sum(math.exp(s[items[m]]) for m in known) + rest) - float(s[y])
        elif loss == "sampled_softmax_corrected":
            kept = sum(math.exp(s[items[m]]) / own[m] for m in known)
            value = math.log(kept + rest) - float(s[y]) + math.log(own[n])
        else:
            noise = drawn if loss == "nce" else fresh
            odds = [math.exp(s[i]) / (count if loss == "nce" else 1.0) for i, count in noise]
            odd = math.exp(s[y]) / (own[n] if loss == "nce" else 1.0)
            value = math.log(1.0 + 1.0 / odd) + sum(math.log(1.0 + o) for o in odds)
        total += shares[n] * float(value)
    return total / sum(shares)


@pytest.mark.parametrize(
    "loss", ["sampled_softmax", "sampled_softmax_corrected", "nce", "binary_cross_entropy"]
)
@pytest.mark.parametrize(
    "sampler", [samplers.unigram(negatives=20), samplers.quadratic(negatives=20)], ids=["shared", "own"]
)
def test_it_is_the_formula_over_the_draw(loss: str, sampler: Any) -> None:
    """Other positives stay in a softmax and are never drawn; hits count as noise in NCE alone."""
    drawing = estimator(getattr(losses, loss)(), sampler)
    drawing.refresh(vectors(CATALOG, 1).float().__getitem__)
    expected = of_draw(loss, drawing)
    assert result(estimator(getattr(losses, loss)(), sampler)) == pytest.approx(expected, rel=1e-4)


def test_seen_items_are_masked_for_each_positive() -> None:
    seen = (torch.tensor([2, 0, 0]), torch.tensor([11, 8, 10]))
    out = estimator(losses.full_softmax())(
        vectors(3, 0), POSITIVES, vectors(CATALOG, 1).__getitem__, seen=seen, targets=TARGETS
    )
    hidden = scores().index_put(seen, torch.tensor(-1e9, dtype=torch.float64))
    torch.testing.assert_close(out.loss, cross_entropy(hidden, distribution()), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("positives", "targets", "sentence"),
    [
        ([[1, 1]], [[0.5, 0.5]], "row 0 of positives has an item twice"),
        ([[1, 2]], [[0.0, 0.0]], "row 0 of targets sums to 0, .* leave out a user vector without"),
        ([[1, 2]], [[0.6, 0.5]], "row 0 of targets sums to 1.1, .* divide the row by its sum, put the rest"),
        ([[1, -1]], [[0.5, 0.5]], "positives has the row -1; give rows 0 to 19"),
        ([[1, 2]], [[1.5, -0.5]], "give numbers of at least zero"),
        ([[1, 2]], [[1.0]], r"give \[B, T\] and \[B, T\]"),
        ([1], [[1.0]], r"give positives \[B, T\]"),
    ],
)
def test_targets_that_are_none_are_refused(positives: Any, targets: Any, sentence: str) -> None:
    with pytest.raises(TrainingError, match=sentence):
        estimator(losses.full_softmax())(
            vectors(1, 0),
            torch.tensor(positives),
            vectors(CATALOG, 1).__getitem__,
            targets=torch.tensor(targets),
        )


def test_hits_of_the_batch_do_not_count_beside_several_positives() -> None:
    estimate = estimator(losses.nce(), samplers.in_batch())
    with pytest.raises(TrainingError, match="remove_accidental_hits = true"):
        estimate(vectors(3, 0), POSITIVES, vectors(CATALOG, 1).__getitem__)
