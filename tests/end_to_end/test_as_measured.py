"""A log sent to the service as it is, event by event, gets the figures of `turret evaluate`."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.support.service_app import ids, post_events, recommended, serving
from tests.training.conftest import prepared, trained
from turret.data.prepared import PreparedData
from turret.model import load
from turret.tower.bundle.golden import load_golden, mean_overlap
from turret.training.config.experiment import ExperimentConfig
from turret.training.export.export import export

DAY, GAP = 86_400, 1_800
KINDS = ["view=signal", "cart=signal", "buy", "back=negative:1:consume=3", "skip=negative"]
USERS: dict[str, dict[str, Any]] = {
    "a window": {"kind": "attentive", "history_length": 20, "hidden": [], "kinds": True},
    # Of the newest 20 events each item counts once, with the kind of the first.
    "a set": {"ordered": False, "leave_out": False, "last_item": False, "history_length": 20, "kinds": True},
}
EXPERIMENT = {
    "objective": {"loss": "full_softmax"},
    "training": {"batch_size": 64, "epochs": 4, "learning_rate": 0.02, "device": "cpu"},
    "evaluation": {"k": [10]},
}
Row = dict[str, Any]


def shop_log(users: int = 70, visits: int = 6, items: int = 40) -> list[Row]:
    """Visits every second day: a favourite is viewed twice, put into the cart and bought, others are viewed.

    The steps of the items are mixed. Some favourites come back or are skipped later.
    """
    random, rows = np.random.default_rng(8), list[Row]()
    for user in range(users):
        favourites = random.choice(items, 3, replace=False)
        for visit in range(visits):
            first, bought = 1_700_000_000 + DAY * (2 * visit + user % 2), int(random.choice(favourites))
            steps = [(int(item), "view") for item in random.choice(items, 4)]
            for kind in ("view", "view", "cart"):
                steps.insert(int(random.integers(len(steps) + 1)), (bought, kind))
            steps.append((bought, "buy"))
            steps += [(int(item), "view") for item in random.choice(items, 2)]
            for kind, share in (("back", 0.15), ("skip", 0.15)):
                if random.random() < share:
                    steps.append((int(random.choice(favourites)), kind))
            for place, (item, kind) in enumerate(steps):
                time = first + 300 * place + 2 * GAP * (kind in ("back", "skip"))
                rows.append({"user": f"u{user:02}", "item": f"i{item:02}", "time": time, "kind": kind})
    return rows


@dataclass(frozen=True)
class Measured:
    log: list[Row]
    data: PreparedData
    ndcg: float
    bundles: Path

    def asked(self) -> Iterator[tuple[str, Row, list[Row], list[Row]]]:
        """Each user of the test part, the target, and the rows before it, with and without its own steps.

        Without them are also those of items whose event in this visit comes later.
        """
        for user in range(len(self.data.users)):
            start, end = int(self.data.splits[user, 1]), int(self.data.offsets[user + 1])
            if start == end:
                continue
            name = str(self.data.users.id(user))
            own, time = [row for row in self.log if row["user"] == name], int(self.data.times[start]) // 1_000
            place = next(
                place for place, row in enumerate(own) if (row["kind"], row["time"]) == ("buy", time)
            )
            later = {row["item"] for row in own[place:] if row["time"] < time + DAY and row["kind"] == "view"}
            later.add(own[place]["item"])
            is_old = [row["time"] < time - DAY // 2 or row["item"] not in later for row in own[:place]]
            yield name, own[place], own[:place], [row for row, old in zip(own, is_old, strict=False) if old]


@pytest.fixture(scope="module", params=USERS)
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder, log = tmp_path_factory.mktemp("measured"), shop_log()
    filters = {"filters__duplicates": "strongest", "filters__session_gap": "30m"}
    data = prepared(folder, log, columns__kind="kind", kinds=KINDS, **filters)
    tower = {"dimension": 8, "user": USERS[request.param]}
    run, _ = trained(folder / "run", data, ExperimentConfig.model_validate(EXPERIMENT | {"tower": tower}))
    assert run.open_model(data).reads_sets == (request.param == "a set")
    ndcg = run.evaluate(data, "test")["towers"]["ndcg@10"]["mean"]
    export(run, data, folder / "bundles", "v1")
    return Measured(log, data, ndcg, folder / "bundles")


def sent(client: TestClient, rows: list[Row]) -> None:
    events = [
        {"event_id": f"{number}", "user_id": row["user"], "item_id": row["item"]}
        | {name: row[name] for name in ("time", "kind")}
        for number, row in enumerate(rows)
    ]
    post_events(client, *events)


def gain(answer: list[str], target: str) -> float:
    return 1 / np.log2(answer.index(target) + 2) if target in answer else 0.0


def test_the_service_merges_the_steps_of_a_visit_and_gets_the_figure_of_the_report(
    measured: Measured,
) -> None:
    """So does `turret.load`. What came back is left out for three days, what was skipped is not."""
    model, found = load(measured.bundles), list[float]()
    assert (model.bundle.manifest.duplicates, model.bundle.manifest.session_gap) == ("strongest", "30m")
    with serving(measured.bundles) as client:
        for user, target, _, before in measured.asked():
            sent(client, before)
            answer = ids(recommended(client, user_id=user, k=10, at=target["time"]))
            found.append(gain(answer, target["item"]))
            history = [{name: row[name] for name in ("item", "kind", "time")} for row in before]
            assert [one.id for one in model.recommend(history, at=target["time"])] == answer
    assert len(found) == 70
    assert np.mean(found) == pytest.approx(measured.ndcg, abs=1e-6)


def test_an_item_in_the_cart_is_recommended_no_worse_than_one_that_was_not_looked_at(
    measured: Measured,
) -> None:
    """All steps of the visit that goes on are sent, up to the purchase."""
    with serving(measured.bundles) as client:
        found = []
        for user, target, before, _ in measured.asked():
            sent(client, before)
            answer = ids(recommended(client, user_id=user, k=10, at=target["time"]))
            found.append(gain(answer, target["item"]))
    assert np.mean(found) > measured.ndcg - 0.02  # a tenth of the users' standard error


def test_recorded_queries_overlap_with_themselves(measured: Measured) -> None:
    """They are replayed with the kinds and the times of their events."""
    bundle = load(measured.bundles).bundle
    assert mean_overlap(bundle, load_golden(bundle.folder).queries) == 1.0


def test_of_a_history_without_times_neighbouring_events_of_an_item_are_merged(measured: Measured) -> None:
    """Visits can't be told. With times, the same events are fewer."""
    model = load(measured.bundles)
    _, _, rows, _ = next(islice(measured.asked(), 1))
    history = [{"item": row["item"], "kind": row["kind"]} for row in rows]
    merged = [{**one, "time": row["time"]} for one, row in zip(history, rows, strict=True)]
    read = [model._read(events, None, None) for events in (history, merged)]
    items = [row["item"] for row in rows if row["kind"] in ("view", "cart", "buy")]
    runs = [item for item, before in zip(items, ["", *items], strict=False) if item != before]
    assert model.bundle.vocabulary.ids(read[0].rows) == runs
    assert len(items) > len(runs) > len(read[1].rows)
