"""A repeat term with random weights, a bundle that has it, and the gains and the likelihood by loops."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tests.conftest import contents, golden_of
from turret.tower.bundle.publish import BundleContents
from turret.tower.format.manifest import ModelCard
from turret.tower.repeats import ItemUse, RepeatTerm, RepeatWeights

SIZES = {"recency": 11, "share": 8, "length": 11, "age": 24, "due": 18, "usual": 18}
SIZES |= {"recency of 0": 12, "recency of 1": 12, "age of 0": 25, "age of 1": 25}
TEMPERATURE = 0.5


def weights(seed: int, timed: bool) -> RepeatWeights:
    random = np.random.default_rng(seed)
    names = [name for name in SIZES if timed or not name.startswith(("age", "due", "usual"))]
    classes = {name: tuple(random.normal(size=SIZES[name]).tolist()) for name in names}
    return RepeatWeights(
        slope=-0.25, numbers={"count": 0.7, "taken": 0.2, "popularity": 0.3}, classes=classes
    )


TERM = RepeatTerm(untimed=weights(1, False), timed=weights(2, True), kinds=2, targets=(1,))
# Days after which half of the items are usually taken again.
GAPS = 86_400 * np.resize(np.array([10, 0, 30, 0], np.float32), 60)


Feature = tuple[str, int]


def features(
    rows: Sequence[int],
    items: ItemUse,
    times: Sequence[float] | None = None,
    asked: float = 0.0,
    kinds: Sequence[int] | None = None,
    targets: Sequence[int] = (0, 1),
) -> dict[int, dict[Feature, float]]:
    """The features of each item of a history of `rows`, oldest first: by the names of
    their weights and, of classes, the place."""
    found = {}
    for row in set(rows):
        places = [place for place, one in enumerate(rows) if one == row]
        events, usual = (items.popularity[row], items.gaps[row]) if row < len(items.gaps) else (0, 0.0)
        takes = [place for place in places if kinds is None or kinds[place] in targets]
        classes = {
            "recency": int(math.log2(len(rows) - places[-1])),
            "share": int(8 * (len(rows) - len(set(rows)) + 0.5) / (len(rows) + 1)),
            "length": int(math.log2(len(rows))),
        }
        if times is not None:
            classes["age"] = int(math.log2(1 + (asked - times[places[-1]]) / 60))
            first, last = (times[takes[0]], times[takes[-1]]) if takes else (0.0, 0.0)
            between = (last - first) / max(1, len(takes) - 1)
            for name, gap in (("due", between), ("usual", float(usual) if takes else 0.0)):
                classes[name] = 0
                if gap > 0:
                    halves = math.floor(2 * math.log2((asked - last) / gap)) if asked > last else -8
                    classes[name] = 9 + min(8, max(-8, halves))
        for kind in (0, 1) if kinds is not None else ():
            of_kind = [place for place in places if kinds and kinds[place] == kind]
            ago = 1 + int(math.log2(len(rows) - of_kind[-1])) if of_kind else 0
            classes[f"recency of {kind}"] = ago
            if times is not None:
                age = 1 + int(math.log2(1 + (asked - times[of_kind[-1]]) / 60)) if of_kind else 0
                classes[f"age of {kind}"] = age
        numbers = {"count": math.log(len(places)), "taken": math.log(1 + len(takes))}
        numbers["popularity"] = math.log(1 + events)
        found[row] = {(name, 0): value for name, value in numbers.items()}
        found[row] |= dict.fromkeys(classes.items(), 1.0)
    return found


def gains(
    rows: Sequence[int],
    scores: NDArray[np.float64],
    items: ItemUse,
    times: Sequence[float] | None = None,
    asked: float = 0.0,
    kinds: Sequence[int] | None = None,
) -> dict[int, float]:
    """What each item of a history of `rows`, oldest first, gains by `TERM` over its score."""
    own = TERM.untimed if times is None else TERM.timed
    assert own is not None
    weights = weights_of(own)
    return {
        row: own.slope * scores[row] + sum(weights[name] * value for name, value in found.items())
        for row, found in features(rows, items, times, asked, kinds, TERM.targets).items()
    }


def weights_of(own: RepeatWeights) -> dict[Feature, float]:
    """The weight of each feature, without the slope."""
    numbers = {(name, 0): weight for name, weight in own.numbers.items()}
    classes = own.classes.items()
    return numbers | {(name, code): one for name, values in classes for code, one in enumerate(values)}


@dataclass(frozen=True)
class Choice:
    """One user's targets among the items that are not left out, with the features of those of the history."""

    scores: NDArray[np.float64]
    targets: set[int]
    left_out: set[int]
    features: dict[int, dict[Feature, float]]


class Likelihood:
    """The penalised likelihood of choices, as docs/evaluation.md says it: all items of all users."""

    def __init__(self, choices: Sequence[Choice], names: Sequence[Feature], penalty: float) -> None:
        self.names, self.penalty = names, penalty
        size = len(choices), len(choices[0].scores)
        inputs = torch.zeros(*size, 1 + len(names), dtype=torch.float64)
        self.scores, self.shares = torch.zeros(2, *size, dtype=torch.float64)
        for user, choice in enumerate(choices):
            self.scores[user] = torch.from_numpy(choice.scores)
            for row, found in choice.features.items():
                inputs[user, row, 0] = choice.scores[row]
                for name, value in found.items():
                    inputs[user, row, 1 + names.index(name)] = value
            for row in choice.left_out:
                self.scores[user, row] = -torch.inf
                inputs[user, row] = 0.0
            for row in choice.targets - choice.left_out:
                self.shares[user, row] = 1 / len(choice.targets)
        self.inputs = inputs

    def loss(self, weights: torch.Tensor, sharpness: float) -> torch.Tensor:
        """Minus the logarithm, a user's mean, of scores that are `sharpness` times those with gains."""
        logits = sharpness * self.scores + self.inputs @ weights
        logarithms = torch.where(self.shares > 0, logits.log_softmax(dim=1), 0.0)
        total = self.penalty / 2 * (weights**2).sum() - (self.shares * logarithms).sum()
        mean: torch.Tensor = total / len(self.scores)
        return mean

    def of(self, own: RepeatWeights, sharpness: float) -> float:
        """The loss of fitted weights."""
        found = weights_of(own)
        weights = torch.tensor([own.slope, *(found[name] for name in self.names)], dtype=torch.float64)
        return float(self.loss(sharpness * weights, sharpness))

    def least(self, sharpness: float) -> float:
        """The least loss at one sharpness."""
        weights = torch.zeros(1 + len(self.names), dtype=torch.float64, requires_grad=True)
        search = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

        def closure() -> float:
            search.zero_grad()
            loss = self.loss(weights, sharpness)
            loss.backward()  # type: ignore[no-untyped-call]
            return float(loss.detach())

        search.step(closure)  # type: ignore[no-untyped-call]
        return float(self.loss(weights, sharpness).detach())


def ranking(
    bundle: Any, rows: Sequence[int], times: Sequence[float] | None = None, asked: float = 0.0
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """All items by their scores with gains, best first, for the mean of a history: rows and scores."""
    vectors = np.array(bundle.item_vectors, dtype=np.float64)
    mean = vectors[list(rows)[-bundle.card.history_length :]].mean(axis=0)
    scores = vectors @ (mean / np.linalg.norm(mean)) / TEMPERATURE
    for row, gain in gains(rows, scores.copy(), ItemUse(bundle.popularity, GAPS), times, asked).items():
        scores[row] += gain
    order = np.argsort(-scores, kind="stable")
    return order, scores[order]


def repeating(version: str = "v1") -> BundleContents:
    """The usual bundle with `TERM`, which ranks used items too."""
    usual = contents(version, temperature=TEMPERATURE, repeats=TERM, exclude_seen=False)
    usual = replace(usual, usual_gaps=GAPS)
    return replace(usual, golden=golden_of(usual.vocabulary, lambda rows: ranking(usual, rows)))


# A shop: kinds of events, and visits of half an hour

KINDS = {
    "view": {"role": "signal"},
    "purchase": {"role": "target"},
    "loan": {"role": "target", "consume": 7},
    "return": {"role": "negative", "consume": True},
}
# Item, kind, days ago. The kept events of a visit are those of the strongest kinds.
LOG = [
    (105, "view", 60.0),
    (101, "purchase", 59.0),
    (102, "view", 40.002),
    (102, "purchase", 40.0),
    (101, "purchase", 39.0),
    (130, "view", 30.0),
    (999, "view", 29.0),  # no item of the catalog
    (107, "loan", 20.0),
    (140, "return", 19.5),
    (101, "purchase", 19.0),
    (108, "loan", 3.0),
    (105, "view", 0.004),
    (150, "view", 0.002),
]


def shop(**others: Any) -> BundleContents:
    """The usual bundle with kinds, visits of half an hour and `TERM`."""
    card = {"duplicates": "strongest", "session_gap": "30m", "exclude_seen": None, "kinds": KINDS}
    usual = contents(temperature=TEMPERATURE)
    card = usual.card.model_dump() | card | {"repeats": TERM.model_copy(update={"kinds": 2})} | others
    made = replace(
        usual,
        card=ModelCard.model_validate(card),
        fields={**usual.fields, "price": [*range(60)]},
        usual_gaps=GAPS,
    )
    if card["repeats"] is None:
        return made
    return replace(made, golden=golden_of(made.vocabulary, lambda rows: ranking(made, rows)))


def events_of(user: int, now: float) -> list[dict[str, Any]]:
    """`LOG` as the events of a user of the service."""
    return [
        {"event_id": place, "user_id": user, "item_id": item, "kind": kind, "time": now - days * 86_400}
        for place, (item, kind, days) in enumerate(LOG)
    ]
