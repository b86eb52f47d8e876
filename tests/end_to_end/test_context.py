"""A shop whose visitors take other items on a phone than at a desk: the device of a request decides."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file

from tests.support.service_app import ids, recommended, serving
from tests.training.conftest import prepared, trained
from turret.activation.held_out import HeldOut
from turret.activation.ranking import values_of_users
from turret.data.prepared import PreparedData
from turret.model import load
from turret.tower.bundle.golden import load_golden, mean_overlap
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import TrainingError
from turret.training.evaluation.ranking import user_vectors
from turret.training.export.export import export
from turret.training.run import build_model
from turret.training.verdict.verdict import unread_context
from turret.training.warm_start import ParentBundle, warm_start_weights

ITEMS, DEVICES = 60, ("desktop", "mobile")
EXPERIMENT: dict[str, Any] = {
    "objective": {"loss": "full_softmax"},
    "training": {"batch_size": 64, "epochs": 15, "learning_rate": 0.02, "device": "cpu"},
    "evaluation": {"k": [10], "exclude_seen": False},
}
TOWERS: dict[str, dict[str, Any]] = {
    "a window": {"kind": "pooled", "hidden": [], "dropout": 0.0},
    "segments": {"kind": "transformer", "history_length": 20, "blocks": 1},
}


def shop_log(users: int = 80, events: int = 12) -> list[dict[str, Any]]:
    """Users of three tastes; on a phone they take even items, at a desk odd ones."""
    random, rows = np.random.default_rng(3), list[dict[str, Any]]()
    for user in range(users):
        for place in range(events):
            device = int(random.integers(2))
            item = 6 * int(random.integers(ITEMS // 6)) + 2 * (user % 3) + 1 - device
            time = 1_700_000_000 + 5_000 * place + user
            rows.append({"user": f"u{user}", "item": item, "time": time, "device": DEVICES[device]})
    return rows


@dataclass(frozen=True)
class Measured:
    data: PreparedData
    experiment: ExperimentConfig
    ndcg: float
    bundles: Path


@pytest.fixture(scope="module", params=TOWERS)
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder = tmp_path_factory.mktemp("context")
    data = prepared(folder, shop_log(), context=["device"])
    user = {**TOWERS[request.param], "context_features": "all"}
    experiment = ExperimentConfig.model_validate(EXPERIMENT | {"tower": {"dimension": 8, "user": user}})
    run, _ = trained(folder / "run", data, experiment)
    ndcg = run.evaluate(data, "test")["towers"]["ndcg@10"]["mean"]
    export(run, data, folder / "bundles", "v1")
    return Measured(data, experiment, ndcg, folder / "bundles")


def test_the_device_of_a_request_decides_and_the_service_gets_the_figure_of_the_report(
    measured: Measured,
) -> None:
    """So does `turret.load`. Histories are those of the test part, sent with the device of the target."""
    data, model, gains = measured.data, load(measured.bundles), list[float]()
    on_device = {device: list[int]() for device in DEVICES}
    log = {(row["user"], 1_000 * row["time"]): row["device"] for row in shop_log()}
    with serving(measured.bundles) as client:
        for user in range(len(data.users)):
            end = int(data.splits[user, 1])
            history = data.item_ids.ids(data.history(user, "test"))
            device = log[str(data.users.id(user)), int(data.times[end])]
            for sent in DEVICES:
                request = {"history": history, "k": 10, "context": {"device": sent}}
                answer = ids(recommended(client, **request))
                assert [each.id for each in model.recommend(history, context={"device": sent})] == answer
                on_device[sent] += answer[:5]
                if sent == device:
                    target = data.item_ids.id(int(data.event_items[end]))
                    gains.append(1 / np.log2(answer.index(target) + 2) if target in answer else 0.0)
    assert np.mean(gains) == pytest.approx(measured.ndcg, abs=1e-6)
    for device, items in on_device.items():
        is_of_device = [item % 2 == 1 - DEVICES.index(device) for item in items]
        assert np.mean(is_of_device) > 0.7, device  # without the device, it is half of them


def test_requests_of_one_moment_do_not_mix_their_contexts_and_an_unknown_one_is_between(
    measured: Measured,
) -> None:
    history = measured.data.item_ids.ids(measured.data.history(0, "end"))
    contexts: list[dict[str, Any]] = [{"device": device} for device in (*DEVICES, "fridge", None)] + [{}]
    with serving(measured.bundles) as client:
        requests = [{"history": history, "context": context, "k": 20} for context in contexts]
        batch = client.post("/v1/recommend/batch", json={"requests": requests}).json()
        alone = [recommended(client, **request) for request in requests]
    answers = [ids(answer) for answer in batch["results"]]
    assert answers == [ids(answer) for answer in alone]
    assert answers[0] != answers[1]
    assert answers[2] == answers[3] == answers[4]  # an unknown value is no context
    assert 0.2 < np.mean([item % 2 for item in answers[4]]) < 0.8


def test_a_context_that_the_version_does_not_read_is_refused_with_the_names_of_those_it_reads(
    measured: Measured,
) -> None:
    with serving(measured.bundles) as client:
        for body, message in (
            ({"context": {"place": "home"}}, "the context that this model reads is device; leave this out"),
            ({"context": {"device": ["mobile"]}}, "this feature takes one value"),
            ({"features": {"device": "mobile"}}, "this is of the request: send it in `context`"),
        ):
            refused = client.post("/v1/recommend", json={"history": [1], **body})
            assert refused.status_code == 422
            assert message in refused.json()["error"]["message"]
            (field,) = body
            assert refused.json()["error"]["field"].startswith(f"{field}.")


def test_recorded_queries_and_the_comparison_of_versions_have_the_contexts_of_events(
    measured: Measured,
) -> None:
    bundle = load(measured.bundles).bundle
    queries = load_golden(bundle.folder).queries
    assert {query.context["device"] for query in queries} == {*DEVICES}
    assert mean_overlap(bundle, queries) == 1.0
    data = measured.data
    held = HeldOut(np.arange(len(data.users)), data.splits[:, 1], data.offsets[1:], "the test part")
    (values,) = values_of_users(bundle, data, held, "ndcg@10").values()
    assert np.mean(values) == pytest.approx(measured.ndcg, abs=1e-6)


def test_scores_of_all_users_are_those_of_requests_with_their_context(
    measured: Measured, tmp_path: Path
) -> None:
    """A file of users has the context in a column, and the option is for all of them."""
    model, history = load(measured.bundles), [1, 7]
    users = tmp_path / "users.jsonl"
    rows = [{"user_id": device, "history": history, "device": device} for device in DEVICES]
    users.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scores = model.score(users=users, k=10)
    for device in DEVICES:
        expected = [each.id for each in model.recommend(history, context={"device": device})]
        assert scores.filter(pl.col("user_id") == device)["item_id"].to_list() == expected
    of_data = model.score(data=measured.data.folder, k=5, context={"device": "mobile"})
    assert np.mean(of_data["item_id"].to_numpy() % 2 == 0) > 0.7


def test_a_verdict_names_a_context_that_no_tower_reads(measured: Measured) -> None:
    assert unread_context(measured.experiment, measured.data) is None
    unread = unread_context(ExperimentConfig(), measured.data)
    assert unread is not None
    assert "device" in unread["sentence"]


def test_a_warm_start_keeps_the_vectors_of_known_contexts(measured: Measured, tmp_path: Path) -> None:
    """Also where a new device comes first among the values; a tower without them is refused."""
    rows = [{**row, "device": "a tablet"} if row["user"] == "u1" else row for row in shop_log()]
    data = prepared(tmp_path, rows, context=["device"])
    parent = ParentBundle.open(measured.bundles / "v1")
    now = build_model(measured.experiment, data).eval()
    warm_start_weights(now, data, parent)
    then = build_model(measured.experiment, measured.data).eval()
    then.load_state_dict(load_file(measured.bundles / "v1" / "model.safetensors"), strict=False)
    users = np.array([0, 5, 9])
    vectors = [
        user_vectors(model, model.catalog_vectors(), known, users, "test")
        for model, known in ((now, data), (then, measured.data))
    ]
    torch.testing.assert_close(*vectors, rtol=0, atol=1e-5)
    with pytest.raises(TrainingError, match=r"tower\.user\.context_features: the bundle .* reads device"):
        parent.check(measured.experiment.tower, {"item": (), "user": (), "context": ()})
