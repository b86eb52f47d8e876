from benchmarks.serving_page import serving_section


def test_the_page_has_what_the_service_costs_and_whether_it_grows() -> None:
    shop = {
        "items": 27_000,
        "rps": {"/bare": 10_000.0, "/v1/recommend": 6_500.0},
        "p99_s": {"/bare": 0.002, "/v1/recommend": 0.0031},
        "rps_ratio": 0.65,
        "rps_ratio_least": 0.61,
        "rps_ratio_greatest": 0.7,
        "p99_ratio": 1.55,
    }
    serving = {
        "connections": 16,
        "shops": {"27k": shop},
        "activations": 20,
        "activation_s": 0.25,
        "activate_failed": 0,
        "activate_p99_over_steady": 1.2,
        "cold_start_s": 0.7,
        "bundle_mb": 80.0,
        "resident_mb": {"1": 190.0, "3": 290.0},
        "further_worker_mb": 50.0,
        "machine": {"cores": 2, "date": "2026-01-02T03:04:05"},
    }
    points = [{"requests": 1_000_100, "activations": 100, "resident_mb": 260.0}]
    soak = {"points": points, "first_mb": 258.0, "last_mb": 260.0, "failed": 0}
    text = serving_section(serving, soak)
    assert "| 27,000 | 6,500 | 10,000 | 0.65 (0.61 to 0.70) | 3.1 ms | 1.55 |" in text
    assert "20 activations under that load, 0.25 s each, 0 requests failed, p99 1.20 times" in text
    assert "one worker holds 190 MB, each further one 50 MB more" in text
    assert "1,000,100 mixed requests and 100 activations with two workers: 258 MB" in text
