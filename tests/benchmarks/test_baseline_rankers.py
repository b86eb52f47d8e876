import json
import sys
from pathlib import Path

import pytest

from benchmarks import baseline_rankers
from tests.support.shops import small_shop


@pytest.mark.nightly
def test_each_baseline_is_measured_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Metrics, seconds, memory and limits by the name of the baseline."""
    shop = small_shop(tmp_path, users=60, items=160)
    monkeypatch.setattr(sys, "argv", ["baseline_rankers", str(shop.folder), "--json"])
    baseline_rankers.main()
    report = json.loads(capsys.readouterr().out)
    assert {"popularity", "recent_popularity", "co_occurrence", "item_knn", "ease"} <= set(
        report["baselines"]
    )
    for result in report["baselines"].values():
        assert 0 <= result["ndcg@10"] <= result["recall@10"] <= 1
        assert result["peak_mb"] >= result["start_mb"] > 0
