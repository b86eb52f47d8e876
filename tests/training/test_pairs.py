"""Labelled pairs, given negatives, and several positives of a user vector, against torch and plain loops."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

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
    built = build_objective(settings.objective, settings.tower, labelled, 0, torch.device("cpu"))
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
        build_objective(settings.objective, settings.tower, data, 0, torch.device("cpu"))

    with pytest.raises(TrainingError, match=r"has none; prepare the data with --label or --negatives"):
        build(handmade)
    plain = [row for row in LOG if row[3]]
    with pytest.raises(TrainingError, match=r"no training event of .* has a negative"):
        build(prepared(tmp_path, plain, TEST))
