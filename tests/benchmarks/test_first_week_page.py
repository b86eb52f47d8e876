"""The table of the first week has a line a log, with every baseline that was fitted."""

from typing import Any

from benchmarks.first_week_page import first_week_section

MACHINE = {"cores": 2, "date": "2026-01-02T03:04:05"}


def row(picked: str, towers: float, **baselines: float) -> dict[str, Any]:
    best = max(baselines, key=lambda name: baselines[name])
    return {
        "picked": picked,
        "towers": {"mean": towers},
        "baselines": {name: {"mean": mean} for name, mean in baselines.items()},
        "best_baseline": best,
        "differences": {
            name: {"mean": towers - mean, "low": towers - mean - 0.01, "high": towers - mean + 0.01}
            for name, mean in baselines.items()
        },
        "auto_over_best_baseline": towers / baselines[best],
        "seconds": {"prepare": 3.0, "train": 75.0, "evaluate": 12.0},
    }


def test_a_line_has_the_figures_of_its_log() -> None:
    """A baseline that could not be fitted on one log has an empty cell there."""
    sets = {
        "ml-100k": row("set", 0.33, popularity=0.1, ease=0.3),
        "globo": row("transformer", 0.2, popularity=0.25),
    }
    text = first_week_section({"sets": sets, "machine": MACHINE})
    assert "| log | picked | towers | popularity | EASE | over the best | minutes |" in text
    assert (
        "| `ml-100k` | set | **0.3300** | 0.1000 | 0.3000 | 1.10 times (+0.0300, [+0.0200, +0.0400]) | 1.5 |"
        in text
    )
    assert (
        "| `globo` | transformer | **0.2000** | 0.2500 |  | 0.80 times (-0.0500, [-0.0600, -0.0400]) | 1.5 |"
        in text
    )
    assert "on 2 cores (2026-01-02)" in text
    assert {line.count("|") for line in text.splitlines()} == {0, 8}
