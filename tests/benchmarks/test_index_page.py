from benchmarks.index_page import index_section


def test_the_page_shows_the_faster_call_of_each_side_and_who_missed_the_recall() -> None:
    def call(side: str, rate: float, recall: float, is_peer: bool, way: str = "single") -> dict[str, object]:
        return {"side": side, "call": way, "queries_per_second": rate, "recall": recall, "is_peer": is_peer}

    at = {
        "ratio": 1.25,
        "ratio_least": 1.1,
        "ratio_greatest": 1.5,
        "ours": "ivf_pq",
        "against": "hnswlib M=16, batch",
        "sides": [
            call("flat", 50000, 1.0, False),
            call("ivf_pq", 100000, 0.9912, False),
            call("hnswlib M=16", 70000, 0.9903, True),
            call("hnswlib M=16", 80000, 0.9903, True, "batch"),
            call("usearch i8 M=16", 20000, 0.9376, True),
        ],
    }
    text = index_section(
        {
            "qps_over_best_peer_at_99": 1.25,
            "target": 0.99,
            "sets": {"ml-1m": {"items": 3416, "at_10": at, "at_100": {"ratio": 1.5}}},
            "machine": {"cores": 2, "date": "2026-01-02T03:04:05"},
        }
    )
    assert "at least 1.25 times as many" in text
    assert (
        "ML-1M, `youtubednn`, 3,416 items: ivf_pq over hnswlib M=16, batch 1.25 (1.10 to 1.50 by round); "
        "for the best 100 1.50." in text
    )
    rows = [
        line
        for line in text.splitlines()
        if (line.startswith("| ") and line[2].isalnum()) or line.startswith("| `")
    ]
    assert rows == [
        "| `ivf_pq` | 0.9912 | 100,000 |",
        "| hnswlib M=16 | 0.9903 | 80,000 |",
        "| `flat` | 1.0000 | 50,000 |",
        "| usearch i8 M=16 | 0.9376, missed | 20,000 |",
    ]
