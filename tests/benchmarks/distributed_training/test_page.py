from typing import Any

from benchmarks.distributed_training.page import distributed_section

FIGURES: dict[str, Any] = {
    "over_one": {"ratio": 1.234, "ratio_least": 1.1, "ratio_greatest": 1.3},
    "over_two_threads": {"ratio": 0.987},
    "half_over_one": {"ratio": 0.876},
    "bytes_sent_a_step": {"figures": 32.0, "gradients": 2.5e6},
    "peak_mb": {"2 processes": 500.4, "1 process": 700.0, "1 process of 2 threads": 701.0},
    "cost_model": [
        {"workers": 8, "sent_mb": {"gradients": 4.0, "figures": 0.5}, "seconds": 0.1, "share_computing": 0.9}
    ],
}
RESULTS = {
    "machine": {"cores": 2, "date": "2026-11-23T15:00:00"},
    "loss_difference": 1.4e-6,
    "memory_share_of_table": 0.5,
    "network_gbit_per_s": 25.0,
    "trainings": dict.fromkeys(("transformer", "transformer_sampled", "in_batch", "split_table"), FIGURES),
}


def test_the_page_has_a_line_for_each_training_and_size() -> None:
    lines = distributed_section(RESULTS).splitlines()
    transformer = "`--experiment transformer`, full softmax over 10,000 items"
    assert f"| {transformer} | 1.23 (1.10, 1.30) | 0.99 | 0.88 | gradients 2.50 MB | 500, 700 MB |" in lines
    in_batch = "pooled tower, candidates of the whole batch"
    assert f"| {in_batch} | 1.23 (1.10, 1.30) | 0.99 |  | gradients 2.50 MB | 500, 700 MB |" in lines
    assert f"| {transformer} | 8 | 4.5 MB | 100 ms | 90 % |" in lines
    assert sum("differ by 1e-06" in line for line in lines) == 1
