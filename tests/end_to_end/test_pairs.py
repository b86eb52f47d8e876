"""Raw events sent to the service get the figure of `turret evaluate`, with factors of pairs beside towers."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.service_app import ids, post_events, recommended, serving
from tests.training.conftest import prepared, trained
from tests.training.test_pair_factors import companions, experiment
from turret.training.export.export import export


@pytest.mark.parametrize("kind", ["transformer", "gru", "pooled"])
def test_the_service_gets_the_figure_of_the_report(kind: str, tmp_path: Path) -> None:
    """A stranger gets what the report ranks for users without a history."""
    log = list(companions(120))
    data = prepared(tmp_path / "data", log)
    tower = {"user": {"kind": kind, "history_length": 10}, "scoring": {"pairs": 16, "item_bias": True}}
    run, _ = trained(tmp_path / "run", data, experiment(tower=tower, refit=True, half_life=20.0))
    chosen = run.chosen_pairs()
    assert chosen is not None
    assert chosen.weight
    ndcg = run.evaluate(data, "test")["towers"]["ndcg@5"]["mean"]
    export(run, data, tmp_path / "bundles", "v1")
    gains = []
    with serving(tmp_path / "bundles") as client:
        for user in range(120):
            *rows, target = [row for row in log if row["user_id"] == f"u{user}"]
            events = [
                {"event_id": f"{user} {place}", "user_id": row["user_id"], "item_id": row["item_id"]}
                | {"time": row["timestamp"]}
                for place, row in enumerate(rows)
            ]
            post_events(client, *events)
            answer = ids(recommended(client, user_id=f"u{user}", k=5, at=target["timestamp"]))
            item = target["item_id"]
            gains.append(1 / np.log2(answer.index(item) + 2) if item in answer else 0.0)
        stranger = ids(recommended(client, user_id="nobody", k=5))
    assert np.mean(gains) == pytest.approx(ndcg, abs=1e-6)
    weights = run.item_weights(data)
    assert stranger == data.item_ids.ids(np.argsort(-weights, kind="stable")[:5].tolist())
