"""Every baseline against plain loops on a small shop."""

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from tests.oracles import ranking as oracle
from tests.support.tools import require
from tests.training.conftest import prepared, with_events
from turret.data.configuration import load_configuration
from turret.data.prepared import HistoryEnd, PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.baselines import pair_models
from turret.training.baselines.popular_before import WINDOWS
from turret.training.baselines.registry import BASELINES, chosen_baselines, terms
from turret.training.errors import TrainingError

USERS = np.arange(12)


def histories(data: PreparedData, until: HistoryEnd) -> list[set[int]]:
    return [set(data.history(user, until).tolist()) for user in range(len(data.users))]


def behind(data: PreparedData) -> np.ndarray:
    """Minus the rank by popularity."""
    events = np.concatenate([data.history(user, "validation") for user in range(len(data.users))])
    counts = np.bincount(events, minlength=len(data.item_ids))
    scores = np.empty(len(counts))
    scores[oracle.ranking(counts.tolist(), set())] = -np.arange(len(counts))
    return scores


def repeaters(data: PreparedData, item: int) -> int:
    """The users with several training events of an item."""
    return sum(data.history(user, "validation").tolist().count(item) > 1 for user in range(len(data.users)))


def summed(
    data: PreparedData, weight: Callable[[int, int], float], until: HistoryEnd, users: np.ndarray
) -> np.ndarray:
    """Weights summed over the history; popularity where that is zero."""
    items, read = range(len(data.item_ids)), histories(data, until)
    weights = np.array([[weight(i, j) for j in items] for i in items])
    scores = np.array([weights[sorted(read[user])].sum(axis=0) for user in users])
    return np.where(scores == 0, behind(data), scores)


@pytest.mark.parametrize("until", ["validation", "test"])
def test_co_occurrence_is_the_number_of_shared_users(loyal: PreparedData, until: HistoryEnd) -> None:
    """Of the training part, summed over the history; with itself, of the users who have it several times."""
    log = histories(loyal, "validation")

    def weight(i: int, j: int) -> float:
        return float(oracle.shared(log, i, j) if i != j else repeaters(loyal, i))

    scores = pair_models.fit_co_occurrence(loyal, until)(USERS)
    np.testing.assert_allclose(scores.numpy(), summed(loyal, weight, until, USERS), rtol=1e-6)


@pytest.mark.parametrize("name", ["last_used", "most_used"])
def test_own_items_come_first_by_their_last_use_or_their_number_of_uses(
    name: str, loyal: PreparedData
) -> None:
    """Of items used equally often the newest comes first; the others follow by popularity."""
    found = BASELINES[name].fit(loyal, "test")(USERS).argsort(dim=1, descending=True).tolist()
    popular = np.argsort(-behind(loyal)).tolist()
    for user, ranked in zip(USERS.tolist(), found, strict=True):
        history = loyal.history(user, "test").tolist()
        newest = list(dict.fromkeys(reversed(history)))
        own = newest if name == "last_used" else sorted(newest, key=lambda item: -history.count(item))
        assert ranked == own + [item for item in popular if item not in own]


def rule(name: str, events: list[tuple[int, str, float]], asked: float) -> list[int]:
    """The items of a history of (item, kind, time), best first, by plain sorting."""
    takes: dict[int, list[float]] = {item: [] for item, *_ in events}
    for item, kind, time in events:
        takes[item] += [time] * (kind == "buy")
    last = {item: place for place, (item, *_) in enumerate(events)}
    bought = {item: place for place, (item, kind, _) in enumerate(events) if kind == "buy"}
    uses = {item: sum(own == item for own, *_ in events) for item in takes}

    def due(item: int) -> float:
        gaps = sorted(later - earlier for earlier, later in pairwise(takes[item]))
        if not gaps:
            return -math.inf
        return -abs(math.log((asked - takes[item][-1]) / gaps[(len(gaps) - 1) // 2]))

    keys: dict[str, Callable[[int], tuple[float, ...]]] = {
        "last_bought": lambda item: (bought.get(item, -1), last[item]),
        "most_bought": lambda item: (len(takes[item]), uses[item], last[item]),
        "due_again": lambda item: (due(item), bought.get(item, -1), last[item]),
    }
    return sorted(takes, key=keys[name], reverse=True)


def bought(folder: Path) -> tuple[PreparedData, list[list[tuple[int, str, float]]]]:
    """Views and purchases at odd times, and the events of each user, with their rows."""
    random = np.random.default_rng(8)
    rows = [
        {
            "user": user,
            "item": int(random.integers(8)),
            "time": 1_700_000_000 + 86_400 * place + int(random.integers(80_000)),
            "kind": "buy" if place > 27 or random.random() < 0.5 else "view",
        }
        for user in range(9)
        for place in range(30)
    ]
    data = prepared(folder, rows, columns__kind="kind", kinds=["view=signal", "buy=target"])
    of_user: list[list[tuple[int, str, float]]] = [[] for _ in range(9)]
    for row in rows:
        user, item = data.users.row(row["user"]), data.item_ids.row(row["item"])
        assert user is not None
        assert item is not None
        of_user[user].append((item, str(row["kind"]), float(row["time"])))
    return data, of_user


@pytest.mark.parametrize("name", ["last_bought", "most_bought", "due_again"])
def test_bought_items_come_first_by_a_rule_of_their_purchases(name: str, tmp_path: Path) -> None:
    data, of_user = bought(tmp_path)
    found = BASELINES[name].fit(data, "test")(np.arange(9)).argsort(dim=1, descending=True).tolist()
    for (*events, last), ranked in zip(of_user, found, strict=True):
        own = rule(name, events, last[2])
        assert ranked[: len(own)] == own


def test_five_bought_items_come_before_the_best_of_ease(tmp_path: Path) -> None:
    data, of_user = bought(tmp_path)
    ease = BASELINES["ease"].fit(data, "test")(np.arange(9)).argsort(dim=1, descending=True).tolist()
    found = BASELINES["five_then_ease"].fit(data, "test")(np.arange(9)).argsort(dim=1, descending=True)
    for (*events, _), ranked, others in zip(of_user, found.tolist(), ease, strict=True):
        newest = list(dict.fromkeys(item for item, kind, _ in reversed(events) if kind == "buy"))[:5]
        assert ranked == newest + [item for item in others if item not in newest]


@pytest.mark.parametrize("of", ["shop", "loyal"])
def test_item_knn_is_the_shrunk_cosine_of_the_nearest(of: str, request: pytest.FixtureRequest) -> None:
    """Only the five nearest of each item count, equal ones by their row, and its own repeats."""
    data: PreparedData = request.getfixturevalue(of)
    log = histories(data, "validation")
    used_by = [oracle.users_of(log, item) for item in range(len(data.item_ids))]

    def near(item: int) -> dict[int, float]:
        weights = {}
        for other, users in enumerate(used_by):
            both = len(users & used_by[item])
            if both and other != item:
                # In the precision of the ranking, in which ties are decided.
                roots = np.sqrt(np.float32(len(users))) * np.sqrt(np.float32(len(used_by[item])))
                weights[other] = np.float32(both) / (roots + np.float32(10.0))
        closest = sorted(weights, key=lambda other: (-weights[other], other))[:5]
        return {other: float(weights[other]) for other in closest}

    lists = [near(item) for item in range(len(used_by))]
    own = [repeaters(data, item) / (len(users) + 10.0) for item, users in enumerate(used_by)]
    expected = summed(data, lambda i, j: lists[i].get(j, 0.0) if i != j else own[i], "test", USERS)
    scores = pair_models.fit_item_knn(data, "test", 5)(USERS)
    np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-5)


def test_ease_ranks_the_most_popular_items_by_its_weights(
    shop: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others follow by popularity, and that is said; without a limit there are no others."""
    assert BASELINES["ease"].limits(shop) == ""
    most = 50
    monkeypatch.setattr(pair_models, "MOST_ITEMS", most)
    assert BASELINES["ease"].limits(shop) == "the 50 most popular items"
    log = histories(shop, "validation")
    matrix = np.zeros((len(log), len(shop.item_ids)))
    for user, items in enumerate(log):
        matrix[user, sorted(items)] = 1.0
    kept = np.sort(np.argsort(-matrix.sum(axis=0), kind="stable")[:most])
    weights = oracle.least_squares_columns(matrix[:, kept], matrix[:, kept].sum() / len(kept))
    found = pair_models.fit_ease(shop, "test")(USERS).numpy()
    read = histories(shop, "test")
    for user in USERS.tolist():
        used = [place for place, item in enumerate(kept) if item in read[user]]
        scores = weights[used].sum(axis=0)
        others = np.setdiff1d(np.arange(len(shop.item_ids)), kept)
        if used:
            np.testing.assert_allclose(found[user, kept], scores - scores.min(), atol=1e-5)
            assert found[user, others].max() < found[user, kept].min()
        np.testing.assert_allclose(found[user, others], behind(shop)[others], rtol=1e-5)


def test_recent_popularity_counts_the_newest_tenth_of_training(shop: PreparedData) -> None:
    bounds = zip(shop.offsets[:-1], shop.splits[:, 0], strict=True)
    training = np.concatenate([np.arange(start, end) for start, end in bounds])
    times, items = shop.times[training], shop.event_items[training]
    since = np.sort(times)[int(0.9 * (len(times) - 1))]
    recent = np.bincount(items[times >= since], minlength=len(shop.item_ids))
    counts = np.bincount(items, minlength=len(shop.item_ids))
    ranked = sorted(range(len(counts)), key=lambda item: (-recent[item], -counts[item], item))
    (scores,) = BASELINES["recent_popularity"].fit(shop, "test")(np.array([0]))
    assert torch.argsort(scores, descending=True).tolist() == ranked


@pytest.mark.parametrize(("name", "window"), WINDOWS.items())
def test_popular_before_counts_all_events_of_the_window_before_a_request(
    name: str, window: int, shop: PreparedData
) -> None:
    users = USERS[::-1].copy()
    scores = BASELINES[f"popular_{name}"].fit(shop, "test")(users)
    targets, order = shop.times, behind(shop)
    for row, user in zip(scores.tolist(), users.tolist(), strict=True):
        at = shop.history_ends("test")[user]
        asked = shop.times[at] if at < shop.offsets[user + 1] else shop.manifest.time.last
        are_counted = (targets >= asked - window) & (targets < asked)
        counts = np.bincount(shop.event_items[are_counted], minlength=len(shop.item_ids))
        assert row == pytest.approx(np.where(counts == 0, order, counts).tolist())


LIVE = [name for name, one in BASELINES.items() if one.is_live]
OF_HISTORIES = sorted(name for name, one in BASELINES.items() if not one.of_queries and name not in LIVE)


@pytest.mark.parametrize("name", OF_HISTORIES)
def test_a_baseline_learns_from_the_training_part_alone(name: str, shop: PreparedData) -> None:
    if name == "als":
        require("implicit")
    datas, users = (shop, with_events(shop, held_out=True)), np.arange(len(shop.users))
    assert torch.equal(*(BASELINES[name].fit(data, "validation")(users) for data in datas))


@pytest.mark.parametrize("name", [name for name in OF_HISTORIES if name != "recent_popularity"])
def test_without_a_history_the_order_is_popularity(name: str, shop: PreparedData) -> None:
    """As the service answers: user 0 has no event before the part. Recent popularity ranks otherwise."""
    if name == "als":
        require("implicit")
    splits = np.array(shop.splits)
    splits[0] = shop.offsets[0]
    data = PreparedData(**{**vars(shop), "splits": splits})
    scores = BASELINES[name].fit(data, "validation")(np.array([0, 1]))
    assert torch.equal(torch.argsort(-scores[0]), torch.from_numpy(np.argsort(-behind(data))))
    if name != "popularity":
        assert not torch.equal(scores[0], scores[1])


@pytest.mark.parametrize(
    ("exclude_seen", "always"),
    [(True, ["popularity"]), (False, ["popularity", "last_used", "most_used", "five_then_ease"])],
)
def test_all_are_those_that_fit_the_data(
    handmade: PreparedData, exclude_seen: bool, always: list[str]
) -> None:
    """Some are always there, of own use where used items are ranked; file order is recent for nobody."""
    assert [baseline.name for baseline in chosen_baselines([], handmade, exclude_seen)[0]] == always
    chosen, left_out = chosen_baselines(["all"], handmade, exclude_seen)
    names = [baseline.name for baseline in chosen if baseline.name != "als"]
    assert names == [*always, "co_occurrence", "item_knn", "ease"]
    timed = ["recent_popularity", *LIVE] + ["due_again"] * (not exclude_seen)
    assert all("no timestamps" in left_out.pop(name) for name in timed)
    assert set(left_out) <= {"als", "last_bought", "most_bought"}


def test_a_baseline_that_is_not_there_or_can_not_be_fitted_is_refused(
    handmade: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_models, "find_spec", lambda name: None)
    for name, sentence in {
        "eaze": r"--baselines eaze: there is no such baseline; there are pop",
        "bm25": r"bm25: users have histories and no texts",
        "lift": r"lift: users have histories, and it compares the items of baskets",
        "recent_popularity": r"recent_popularity: its events have no timestamps",
        "last_used": r"last_used: the run leaves out all used items",
        "als": r"als: implicit is not installed; run: pip install .*\[b",
    }.items():
        with pytest.raises(TrainingError, match=sentence):
            chosen_baselines([name], handmade, True)


def test_bm25_agrees_with_its_formula(tmp_path: Path) -> None:
    """In Lucene's variant: the sum of idf f / (f + k1 (1 - b + b L / mean L)) over the terms of the query.

    Items that share no term follow by popularity.
    """
    texts = ["a rabbit and a fox", "the fox", "rabbit rabbit rabbit", "nothing alike"]
    rows = {"query": ["fox and rabbit", "兔子"], "item": texts[:2], "split": ["train", "train"]}
    pl.DataFrame(rows).write_csv(tmp_path / "pairs.csv")
    pl.DataFrame({"item": texts, "title": texts}).write_csv(tmp_path / "items.csv")
    given = {"queries.source": str(tmp_path / "pairs.csv"), "items": str(tmp_path / "items.csv")}
    config = load_configuration(PrepareConfig, overrides=given)
    data = PreparedData.open(prepare(config, tmp_path / "prepared").folder)
    row = data.users.row("fox and rabbit")
    assert row is not None
    found = BASELINES["bm25"].fit(data, "test")(np.array([row]))[0]
    words = [title.split() for title in data.fields["title"]]
    mean = sum(map(len, words)) / len(words)
    popular = sorted(range(len(texts)), key=lambda item: (data.fields["title"][item] not in texts[:2], item))
    for item, document in enumerate(words):
        expected = 0.0
        for term in ("fox", "and", "rabbit"):
            holders, count = sum(term in other for other in words), document.count(term)
            idf = math.log(1 + (len(words) - holders + 0.5) / (holders + 0.5))
            expected += idf * count / (count + 1.2 * (0.25 + 0.75 * len(document) / mean))
        assert float(found[item]) == pytest.approx(expected or popular.index(item) * -1.0, rel=1e-5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, World's 2nd", ["hello", "world", "s", "2nd"]),
        ("我的包裹 A1", ["我的", "的包", "包裹", "a1"]),
        ("?!", []),
    ],
)
def test_terms_are_words_or_pairs_of_characters(text: str, expected: list[str]) -> None:
    assert terms(text) == expected
