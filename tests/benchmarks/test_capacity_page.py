"""The section of the capacity has the cost of each part and the time in which replicas follow."""

from benchmarks.capacity_page import capacity_section


def test_the_section_has_a_line_for_each_part_and_number_of_replicas() -> None:
    proxy = {
        "items": 100_000,
        "direct": {"replica_ms": 0.25},
        "through": {"replica_ms": 0.4, "proxy_ms": 0.05},
        "core_rps": {"replica_direct": 4000.0, "replica": 2500.0, "proxy": 20_000.0},
        "replica_mb": 321.4,
        "bundle_mb": 77.0,
        "machine": {"cores": 2, "date": "2026-01-02T03:04:05"},
    }
    row = {
        "replicas": 2,
        "activation_ms": {"median": 620.0},
        "item_change_ms": {"median": 52.0, "p95": 71.0},
    }
    text = capacity_section(proxy, {"replicas": [row]})
    assert "| replica behind the proxy | 0.40 ms | 2,500 |" in text
    assert "| proxy | 0.05 ms | 20,000 |" in text
    assert "holds 321 MB. Its bundle has 77 MB, so one of a million items has about 770 MB." in text
    assert "| 2 | 0.62 | 0.052 | 0.071 |" in text
    assert text.endswith("2 cores, 2026-01-02.\n")
