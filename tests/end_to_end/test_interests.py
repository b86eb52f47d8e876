"""Users of several interests, from training to answers: an item counts by its best score."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray

import turret
from tests.end_to_end.test_pipeline import answered, ranked_by_the_evaluator
from tests.support.service_app import ids, recommended, serving
from tests.support.trained import trained_shop
from turret.activation.held_out import held_out
from turret.activation.ranking import values_of_users
from turret.data.errors import TurretError
from turret.scoring.by_item import score_items
from turret.scoring.run import Run as ScoringRun
from turret.scoring.run import Users
from turret.scoring.vectors import write_vectors
from turret.service.overlay.fresh import empty_overlay
from turret.service.ranking.answers import ids_of
from turret.service.ranking.batches import recommend
from turret.service.ranking.query import NO_HISTORY, make_query
from turret.service.schemas.requests import RecommendRequest
from turret.service.versions.holder import LoadedModel
from turret.tower.retrieval import Retriever
from turret.training.evaluation.evaluation import TOWERS, evaluate_rankers
from turret.training.run import Run

INTERESTS = 3
SETTINGS = {
    "tower.dimension": 16,
    "tower.user.interests": INTERESTS,
    "tower.user.last_item": False,
    "training.epochs": 2,
    "training.batch_size": 512,
}
Scores = NDArray[np.float64]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("interests")
    trained = turret.train(trained_shop().data, folder / "run", experiment="demo", settings=SETTINGS)
    trained.export(folder / "bundles", "v1")
    return trained.run


@pytest.fixture(scope="module")
def bundles(run: Run) -> Path:
    return run.folder.parent / "bundles"


@pytest.fixture(scope="module")
def client(bundles: Path) -> Iterator[TestClient]:
    with serving(bundles) as client:
        yield client


@pytest.fixture(scope="module")
def history() -> list[Any]:
    data = trained_shop().data
    return data.item_ids.ids(data.history(int(np.argmax(np.diff(data.offsets))), "end"))


def vectors(client: TestClient, items: list[Any], history: list[Any]) -> tuple[Scores, Scores]:
    """The vectors [N, D] of items and [I, D] of a user, as the service gives them."""
    body = {"items": items, "requests": [{"history": history}]}
    answer = client.post("/v1/vectors", json=body).json()
    assert answer["temperature"] == pytest.approx(trained_shop().run().experiment.tower.scoring.temperature)
    given = np.array([item["vector"] for item in answer["items"]]), np.array(answer["requests"][0])
    assert given[1].shape == (INTERESTS, 16)
    return given


@pytest.fixture(scope="module")
def scores(client: TestClient, history: list[Any]) -> dict[Any, float]:
    """The best score of each item outside of the history by the user's interests, best first."""
    data = trained_shop().data
    others = [item for item in data.item_ids.ids(range(len(data.item_ids))) if item not in history]
    items, users = vectors(client, others, history)
    best = (items @ users.T).max(axis=1) / trained_shop().run().experiment.tower.scoring.temperature
    assert len(np.unique((items @ users.T).argmax(axis=1)[np.argsort(-best)[:20]])) > 1
    return dict(sorted(zip(others, best.tolist(), strict=True), key=lambda pair: -pair[1]))


def test_the_service_answers_what_the_evaluator_ranks(run: Run, client: TestClient) -> None:
    """For 200 users the same ten items in order, one by one and in batches."""
    _, histories, expected = ranked_by_the_evaluator(run, trained_shop().data)
    assert answered(client, [{"history": history} for history in histories]) == expected


def test_an_activation_measures_what_an_evaluation_measures(run: Run, bundles: Path) -> None:
    """The metric by which a version is not worse than the live one, user by user."""
    bundle, data = turret.load(bundles).bundle, trained_shop().data
    rankers = {TOWERS: lambda: run.open_ranker(data, "test")}
    _, evaluated = evaluate_rankers(rankers, data, "test", run.experiment.evaluation)
    chosen = held_out(data, bundle.manifest, bundle.manifest)
    assert data.users.ids(chosen.users) == evaluated.users
    values = values_of_users(bundle, data, chosen, "ndcg@10")["ndcg@10"]
    # Items that tie but for rounding may change places.
    assert np.isclose(values, evaluated.values[TOWERS]["ndcg@10"]).mean() > 0.98
    assert 0.0 < values.mean() < 1.0


def test_every_condition_is_of_the_best_scores(
    client: TestClient, history: list[Any], scores: dict[Any, float]
) -> None:
    """Pages, filters, boosts, pins, a least score and items left out, by a sort of all scores."""
    data, best = trained_shop().data, list(scores)
    price = {
        item: data.fields["price"][row]
        for row, item in enumerate(data.item_ids.ids(range(len(data.item_ids))))
    }
    limit = float(np.median([*price.values()]))
    cheap = {"price": {"lte": limit}}
    boosted = {item: score + 2.0 * (price[item] <= limit) for item, score in scores.items()}
    pinned = [best[0], best[40], *best[1:9]]
    least = scores[best[5]] - 1e-4
    for conditions, expected in (
        ({}, best[:10]),
        ({"filter": cheap}, [item for item in best if price[item] <= limit][:10]),
        ({"boost": [{"filter": cheap, "by": 2.0}]}, sorted(best, key=lambda item: -boosted[item])[:10]),
        ({"pin": [{"item": best[40], "position": 2}]}, pinned),
        ({"min_score": least}, best[:6]),
        ({"exclude": best[:4]}, best[4:14]),
    ):
        answer = recommended(client, history=history, k=10, **conditions)
        assert ids(answer) == expected, conditions
        if not conditions:
            assert [item["score"] for item in answer["items"]] == pytest.approx(
                [scores[item] for item in expected], rel=1e-4
            )
            following = recommended(client, history=history, k=10, cursor=answer["cursor"])
            assert ids(following) == best[10:20]


def test_an_explanation_names_the_interest_by_the_nearest_items_of_the_history(
    client: TestClient, history: list[Any], scores: dict[Any, float]
) -> None:
    answer = recommended(client, history=history, k=20, explain=True)
    read = list(dict.fromkeys(history))
    items, users = vectors(client, [*ids(answer), *read], history)
    shown, used = items[:20], items[20:]
    for vector, item in zip(shown, answer["explanation"]["items"], strict=True):
        interest = users[np.argmax(users @ vector)]
        assert item["score_parts"]["inner_product"] == pytest.approx(vector @ interest, rel=1e-4)
        cosines = dict(zip(read, (used @ interest).tolist(), strict=True))
        assert [cosines[near] for near in item["interest"]] == pytest.approx(
            sorted(cosines.values())[:-4:-1], abs=1e-5
        )
    assert len({tuple(item["interest"]) for item in answer["explanation"]["items"]}) > 1


def test_a_search_for_similar_items_joins_one_for_a_user(bundles: Path, history: list[Any]) -> None:
    """A query of one vector among those of several has the answer that it has alone."""
    bundle = turret.load(bundles).bundle
    model, fresh = LoadedModel(bundle, Retriever(bundle), datetime.now(UTC)), empty_overlay(bundle)

    def queries() -> list[Any]:
        request = RecommendRequest(history=history, k=10)
        user = make_query(request, NO_HISTORY, (), 0)
        return [user, replace(user, similar_to=str(history[0])), replace(user)]

    together = recommend(model, fresh, queries())
    alone = [recommend(model, fresh, [query])[0] for query in queries()]
    assert [*map(ids_of, together)] == [*map(ids_of, alone)]
    assert ids_of(together[0]) == ids_of(together[2]) != ids_of(together[1])


def test_lists_of_all_users_have_the_answers_of_the_service(
    client: TestClient, bundles: Path, tmp_path: Path
) -> None:
    """Files of one vector a user, and of the users of an item, are refused with a way out."""
    model, data = turret.load(bundles), trained_shop().data
    lists = model.score(data=data.folder, k=5)
    for row in range(0, len(data.users), 40):
        of_user = lists.filter(lists["user_id"] == str(data.users.id(row))).sort("rank")
        sent = data.item_ids.ids(data.history(row, "end"))
        assert of_user["item_id"].to_list() == ids(recommended(client, history=sent, k=5))
        assert of_user["item_id"].to_list() == [item.id for item in model.recommend(sent, k=5)]
    source = Users(data=data.folder)
    with pytest.raises(TurretError, match=r"version v1 has 3 vectors a user.* ask POST /v1/vectors"):
        write_vectors(model.bundle, "users", tmp_path / "users.parquet", source)
    with pytest.raises(TurretError, match=r"has 3 vectors a user.* a version of tower\.user\.interests = 1"):
        score_items(ScoringRun(model.bundle, source, tmp_path / "items.parquet"), 5)
