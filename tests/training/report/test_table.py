from typing import Any

from turret.training.report.table import report_table, shown_bias


def row(**changed: Any) -> dict[str, Any]:
    figures = {
        "sampler": "uniform",
        "negatives": 4,
        "candidates": 4.0,
        "kl": 1.25,
        "effective_share": 0.5,
        "bias": 0.1,
        "bias_low": 0.05,
        "bias_high": 0.15,
        "variance": 0.25,
        "milliseconds": 12.5,
        "timed_examples": 256,
    }
    return {**figures, **changed}


def report(**changed: Any) -> dict[str, Any]:
    figures = {
        "items": 1234,
        "queries": 64,
        "queries_asked": 64,
        "draws": 200,
        "batch_size": 256,
        "full_softmax": {"milliseconds": 99.5, "timed_examples": 256},
        "samplers": [row(), row(sampler="in_batch", negatives=None, candidates=255.6, kl=None)],
        "in_batch_losses": [row(loss="sampled_softmax", batch_size=8192, bias_low=0.0)],
        "staleness": [],
        "skipped": [],
    }
    return {**figures, **changed}


def test_every_figure_is_shown() -> None:
    """Also what is infinite, and how many candidates a batch made."""
    lines = report_table(report()).splitlines()
    (uniform,) = (line for line in lines if line.startswith("│ uniform"))
    assert [cell.strip() for cell in uniform.split("│")[1:-1]] == [
        *("uniform", "4", "1.250", "50.0%", "10.0%", "0.25", "12.5")
    ]
    (in_batch,) = (line for line in lines if line.startswith("│ in_batch"))
    assert [cell.strip() for cell in in_batch.split("│")[2:4]] == ["256", "∞"]
    assert any("full softmax" in line and "99.5" in line for line in lines)
    assert "64 queries, 1,234 items" in lines[0]


def test_losses_over_in_batch_candidates_have_a_table() -> None:
    """With the size of the batch, and a bound where the bias can't be told from none."""
    (line,) = (line for line in report_table(report()).splitlines() if line.startswith("│ sampled_softmax"))
    cells = [cell.strip() for cell in line.split("│")[1:-1]]
    assert cells == ["sampled_softmax", "8,192", "< 15.0%", "0.25"]


def test_a_bias_that_draws_can_not_tell_from_none_is_a_bound() -> None:
    assert shown_bias(row()) == "10.0%"
    assert shown_bias(row(bias_low=0.0)) == "< 15.0%"


def test_old_vectors_have_a_table_of_their_own() -> None:
    """With how far the model has moved."""
    stale = row(sampler="quadratic", refresh_every=100, steps=100, moved=0.034)
    shown = report_table(report(staleness=[stale]))
    assert "after 100 more steps, which moved the item vectors by 3.4%" in shown
    assert "refresh_every" in shown
    assert "refresh_every" not in report_table(report())


def test_what_is_not_measured_is_said_with_the_reason() -> None:
    skipped = [
        {"sampler": "mixed", "negatives": "4, 16", "reason": "because [so]."},
        {"sampler": "in_batch", "negatives": "", "reason": "because."},
    ]
    shown = report_table(report(skipped=skipped))
    assert "Not measured: mixed with K = 4, 16: because [so]." in shown
    assert "Not measured: in_batch: because." in shown


def test_fewer_queries_and_scaled_times_are_said() -> None:
    """And not said where everything was as asked."""
    plain = report_table(report())
    assert "instead of" not in plain
    assert "scaled" not in plain
    full = {"milliseconds": 99.5, "timed_examples": 32}
    shown = " ".join(report_table(report(queries=8, full_softmax=full)).split())
    assert "8 queries instead of 64" in shown
    assert "timed on 32 examples and scaled up" in shown


def test_the_first_table_has_ten_rows_of_ninety() -> None:
    """The best by bias and cost, and the full softmax; `--all` has every row."""
    rows = [
        row(sampler=f"sampler{number}", bias=1 / (1 + number), bias_low=0.001, milliseconds=float(number))
        for number in range(45)
    ]
    rows += [{**other, "sampler": f"worse {other['sampler']}", "bias": 2.0} for other in rows]
    best, all_rows = (report_table(report(samplers=rows), show_all=show) for show in (False, True))
    assert sum("sampler" in line for line in best.splitlines() if line.startswith("│")) == 9
    assert "worse" not in best
    assert "--all shows 81 more" in best
    assert sum("sampler" in line for line in all_rows.splitlines() if line.startswith("│")) == 90
    assert "--all" not in all_rows


def test_the_report_ends_with_a_recommendation() -> None:
    last = " ".join(report_table(report()).partition("Recommendation:")[2].split())
    assert last.startswith("full_softmax, 99.5 ms a step")
    assert last.endswith(".")
