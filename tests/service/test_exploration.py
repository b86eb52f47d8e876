"""Exploration: draws with exact propensities, where it is on, under all conditions of a request."""

import math
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray
from scipy import stats

from tests.conftest import contents
from tests.support.item_towers import placed, with_item_tower
from tests.support.service_app import ADMIN, ids, recommended, serving
from turret.data.answers.log import read_answers
from turret.service.ranking.exploration import Explorer, draw_order, place_chances, propensities
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.publish import publish

# A correct draw fails with this probability, and these draws are the same in each run.
_CHANCE = 1e-6
DRAWS, PLACES = 1_000_000, 2
# The rows of a usual answer: the first two are candidates, the last is none.
USUALS = [(10, 11), (12, 99)]
WEIGHTS = {"epsilon": (0.0, 0.0, 0.0, 0.0), "plackett_luce": (1.5, 0.7, -0.2, -2.0)}
CANDIDATES = (10, 11, 12, 13)


def chance_of(row: int, place: int, weights: Sequence[float], candidates: Sequence[int]) -> float:
    """The probability that a row is drawn at a place, by the definition: a sum over all orders before it."""
    exponentials, total = dict(zip(candidates, map(math.exp, weights), strict=True)), 0.0
    for order in permutations(candidates, place + 1):
        left, chance = dict(exponentials), 1.0
        for each in order if order[-1] == row else ():
            chance *= left[each] / sum(left.values())
            del left[each]
        total += chance if order[-1] == row else 0.0
    return total


@pytest.mark.parametrize("usual", USUALS)
@pytest.mark.parametrize("method", WEIGHTS)
def test_a_million_answers_have_the_logged_propensities(method: str, usual: tuple[int, ...]) -> None:
    weights, rows, share = np.array(WEIGHTS[method]), np.array(CANDIDATES), 0.3
    random = np.random.default_rng(59)
    drawn = rows[draw_order(weights, random.gumbel(size=(DRAWS, len(rows))))[:, :PLACES]]
    is_drawn = random.random(DRAWS) < share
    shown = np.where(is_drawn[:, None], drawn, np.array(usual))
    for place in range(PLACES):
        expected, found = list[float](), list[int]()
        for row in sorted({*CANDIDATES, usual[place]}):
            other = next(each for each in CANDIDATES if each not in (row, usual[place]))
            sequence = np.full(PLACES, other)
            sequence[place] = row
            chance = propensities(weights, rows, sequence, np.array(usual), share)[place]
            by_draw = chance_of(row, place, WEIGHTS[method], CANDIDATES)
            exact = (1 - share) * (row == usual[place]) + share * by_draw
            assert math.isclose(chance, exact, rel_tol=1e-7)
            expected.append(exact * DRAWS)
            found.append(int((shown[:, place] == row).sum()))
        assert stats.chisquare(found, expected).pvalue > _CHANCE


@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0, 100.0])
def test_the_chances_of_a_place_are_those_of_the_definition_and_have_the_sum_one(spread: float) -> None:
    """With scores so far apart that some candidates are hardly ever drawn, too."""
    weights = np.linspace(0.0, spread, 6)[[3, 0, 5, 1, 4, 2]]
    for place in range(4):
        chances = []
        for item in range(6):
            order = np.array([*[other for other in range(6) if other != item][:place], item])
            chances.append(place_chances(weights, order)[place])
            exact = chance_of(item, place, weights.tolist(), range(6))
            assert math.isclose(chances[-1], exact, rel_tol=1e-7, abs_tol=1e-12)
        assert math.isclose(sum(chances), 1.0, rel_tol=1e-7)


def test_each_worker_shows_a_new_item_its_part_of_the_views(published: Path) -> None:
    bundle, explorer = Bundle.open(published / "v1"), Explorer(workers=4)
    for views in range(5):
        assert explorer.may_show(bundle, 7, 20) is (views < 5)
        explorer.count(bundle, [7])
    assert not explorer.may_show(bundle, 7, 20)
    assert explorer.may_show(bundle, 8, 1)
    assert explorer.may_show(Bundle.open(published / "v1"), 7, 20)


# ---- Answers


def route(client: TestClient, status: int = 200, **routes: Any) -> dict[str, Any]:
    answer = client.post("/admin/routes", json=routes, headers=ADMIN)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def explored(answer: dict[str, Any]) -> list[int]:
    """The places that were drawn."""
    return [place for place, item in enumerate(answer["items"], 1) if item.get("explored")]


EXPLORE: dict[str, Any] = {"places": [3, 5], "share": 1.0}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[TestClient]:
    """60 items, of which all answers are explored where they may be."""
    publish(root := tmp_path / "bundles", with_item_tower(contents()))
    with serving(root, answer_log=str(tmp_path / "log"), popular="") as client:
        route(client, explore=EXPLORE)
        yield client


CONDITIONS: list[dict[str, Any]] = [
    {},
    {"exclude": [*range(103, 140)]},
    {"filter": {"title": {"any_of": [f"Item {number}" for number in range(102, 112)]}}},
    {"pin": [{"item": 150, "position": 1}, {"item": 151, "position": 4}]},
    {"pin": [{"item": 150 + place, "position": place} for place in range(3, 6)]},
    {"boost": [{"filter": {"title": {"equals": "Item 120"}}, "by": 100}]},
    {"min_score": 0.4},
    {"exclude_seen": False},
    {"among": "new"},
    {"exclude": [*range(103, 156)], "k": 60},
    *({"k": k} for k in (1, 2, 3, 4, 60)),
]


@pytest.mark.parametrize("method", WEIGHTS)
@pytest.mark.parametrize("more", CONDITIONS)
def test_a_draw_meets_all_conditions_of_the_request(
    shop: TestClient, more: dict[str, Any], method: str
) -> None:
    request = {"history": [101, 102], "k": 8} | more
    route(shop, explore=None)
    usual = recommended(shop, **request)
    allowed = {item["id"]: item for item in recommended(shop, **(request | {"k": 60}))["items"]}
    route(shop, explore={**EXPLORE, "method": method})
    pinned = {place for place, item in enumerate(usual["items"], 1) if item.get("pinned")}
    for _ in range(15):
        answer = recommended(shop, **request)
        shown = ids(answer)
        assert len({*shown}) == len(shown) == len(usual["items"])
        assert {*shown} <= allowed.keys()
        assert shown[:2] == ids(usual)[:2]
        assert explored(answer) == [p for p in (3, 4, 5) if p <= len(shown) and p not in pinned]
        for place in pinned:
            assert answer["items"][place - 1] == usual["items"][place - 1]
        for item in answer["items"]:
            mark = {"explored": True} if item.get("explored") else {}
            assert item["score"] == pytest.approx(allowed[item["id"]]["score"], rel=1e-5)
            assert item["fields"] == allowed[item["id"]]["fields"]
            assert item.get("explored", False) is bool(mark)
        assert shown[5:] == ids(usual)[5:]
        assert answer.get("cursor") == usual.get("cursor")


def test_what_is_not_a_first_page_of_a_users_answer_by_the_towers_is_not_explored(shop: TestClient) -> None:
    request = {"history": [101, 102], "k": 8}
    answers = [
        recommended(shop, **request, cursor=recommended(shop, **request)["cursor"]),
        *(recommended(shop, **request, **more) for more in ({"diversity": 0.5}, {"cap": {"genres": 9}})),
        recommended(shop, **request, explain=True),
        recommended(shop, k=8),
        shop.post("/v1/items/101/similar", json={"k": 8}).json(),
    ]
    assert [explored(answer) for answer in answers] == [[]] * 6
    batch = shop.post("/v1/recommend/batch", json={"requests": [request] * 2}).json()["results"]
    assert [explored(answer) for answer in batch] == [[3, 4, 5]] * 2


def test_the_next_page_is_that_of_the_answer_without_a_draw(shop: TestClient) -> None:
    request = {"history": [101, 102], "k": 8}
    with_draw = recommended(shop, **request)
    route(shop, explore=None)
    without = recommended(shop, **request)
    pages = [recommended(shop, **request, cursor=first["cursor"]) for first in (with_draw, without)]
    assert ids(with_draw) != ids(without)
    assert pages[0] == pages[1]


def test_the_propensities_of_the_log_are_the_frequencies_of_the_answers(
    shop: TestClient, tmp_path: Path
) -> None:
    """At the first drawn place, before which all answers are the same."""
    explore = {"places": [2, 4], "share": 0.5, "method": "plackett_luce"}
    route(shop, explore=explore)
    request = {"history": [101, 102], "k": 5}
    for _ in range(30):
        answer = shop.post("/v1/recommend/batch", json={"requests": [request] * 100})
        assert answer.status_code == 200
    shop.app.state.components.answer_log.close()  # type: ignore[attr-defined]
    rows = read_answers(tmp_path / "log").collect()
    assert rows.height == 3_000
    second = rows.select(pl.col("items").list.get(1), pl.col("propensities").list.get(1))
    found = second.group_by("items").agg(
        pl.len(), pl.col("propensities").mean(), pl.col("propensities").std().fill_null(0).alias("deviation")
    )
    assert found["deviation"].max() == pytest.approx(0, abs=1e-6)  # of the last bits of scores in a batch
    chances: NDArray[np.float64] = found["propensities"].to_numpy()
    is_common, counts = chances * 3_000 >= 5, found["len"].to_numpy()
    shares, seen = [*chances[is_common]], [*counts[is_common]]
    if (rest := 1.0 - sum(shares)) > 1e-6:  # of rows that are rarely drawn
        shares.append(rest)
        seen.append(counts[~is_common].sum())
    expected = np.array(shares) / sum(shares) * 3_000
    assert stats.chisquare(seen, expected).pvalue > _CHANCE
    outside = rows.select(pl.col("propensities").list.gather([0, 4])).to_series()
    assert outside.explode().unique().to_list() == [1.0]
    first_and_last = rows.select(pl.col("items").list.gather([0, 4])).to_series()
    assert len({*map(tuple, first_and_last.to_list())}) == 1, "their propensity is 1, so they are the same"


def test_a_new_item_is_drawn_until_it_has_its_views(shop: TestClient) -> None:
    request = {"history": [101, 102], "k": 8}
    route(shop, explore={**EXPLORE, "among": "new", "views": 3})
    usual = ids(recommended(shop, **request))
    assert explored(recommended(shop, **request)) == []
    far = -contents().item_vectors[[1, 2]].sum(axis=0)
    assert shop.put("/v1/items/900", json={"features": placed(far)}).status_code == 200
    route(shop, explore=None)
    assert ids(recommended(shop, **request)) == usual
    route(shop, explore={**EXPLORE, "among": "new", "views": 3})
    for _ in range(3):
        answer = recommended(shop, **request)
        assert (explored(answer), ids(answer)[2]) == ([3], 900)
        assert answer["items"][2]["source"] == "fresh"
        assert ids(answer)[3:] == usual[3:8]
    assert ids(recommended(shop, **request)) == usual
    assert explored(recommended(shop, **request, exclude=[900])) == []


# ---- Routes


def test_the_exploration_of_a_route_is_stored_shown_and_ended(three: Path) -> None:
    canary = {"version": "v2", "share": 1.0, "explore": {**EXPLORE, "among": "new", "views": 9}}
    with serving(three) as client:
        assert route(client)["explore"] is None
        shown = route(client, canary=canary, explore=EXPLORE)
        filled = {"places": [3, 5], "share": 1.0, "among": "near", "method": "epsilon", "views": 1000}
        assert shown["explore"] == filled
        assert shown["canary"] == canary | {"explore": filled | {"among": "new", "views": 9}}
    with serving(three) as client:  # another service on the same record
        assert client.get("/admin/routes", headers=ADMIN).json()["explore"] == filled
        assert route(client, explore=None)["canary"]["explore"]["views"] == 9
        assert route(client, canary={"version": "v2", "share": 1.0})["canary"]["explore"] is None


def test_a_canary_explores_by_its_own_route_and_the_shadow_by_none(three: Path) -> None:
    with serving(three) as client:
        route(client, canary={"version": "v2", "share": 1.0, "explore": EXPLORE})
        assert explored(recommended(client, user_id=1, history=[201], k=8)) == [3, 4, 5]
        route(client, canary=None, shadow={"version": "v2", "share": 1.0})
        assert explored(recommended(client, user_id=1, history=[101], k=8)) == []


WRONG: list[tuple[dict[str, Any], str, str]] = [
    (
        {"places": [5, 3], "share": 0.1},
        "explore.places",
        "send the first and the last place, such as [5, 10]",
    ),
    ({"places": [1, 21], "share": 0.1}, "explore.places", "at most 20 places are drawn"),
    ({"places": [0, 3], "share": 0.1}, "explore.places.0", "send a number from 1"),
    ({"places": [3], "share": 0.1}, "explore.places", "send the first and the last place"),
    ({"places": [3, 4, 5], "share": 0.1}, "explore.places", "at most 2"),
    ({"places": [3, 1e9], "share": 0.1}, "explore.places.1", "up to 1000"),
    ({"places": "3-5", "share": 0.1}, "explore.places", "send a list"),
    ({"places": [3, 5]}, "explore.share", "this field is required"),
    ({"places": [3, 5], "share": 0}, "explore.share", "send a number above 0"),
    ({"places": [3, 5], "share": 1.1}, "explore.share", "send a number up to 1"),
    ({"places": [3, 5], "share": 0.1, "among": "all"}, "explore.among", "send 'new' or 'near'"),
    ({"places": [3, 5], "share": 0.1, "method": "greedy"}, "explore.method", "send 'epsilon' or"),
    ({"places": [3, 5], "share": 0.1, "views": 0}, "explore.views", "send a number from 1"),
    ({"places": [3, 5], "share": 0.1, "views": 10**30}, "explore.views", "send"),
    ({"places": [3, 5], "share": 0.1, "seed": 1}, "explore.seed", "unknown field; the fields are places"),
]


@pytest.mark.parametrize(("body", "field", "words"), WRONG)
def test_an_exploration_that_can_not_be_is_refused(
    client: TestClient, body: dict[str, Any], field: str, words: str
) -> None:
    error = route(client, 422, explore=body)["error"]
    assert error["field"] == field
    assert words in error["message"]
    error = route(client, 422, shadow={"version": "v1", "share": 1, "explore": EXPLORE})["error"]
    assert error["field"] == "shadow.explore"
