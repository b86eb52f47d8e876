from pathlib import Path
from typing import Any

import pytest

from turret.training.errors import TrainingError
from turret.training.figures import check_format
from turret.training.report.plot import plot_report


def row(sampler: str, milliseconds: float, bias: float, low: float) -> dict[str, Any]:
    return {
        "sampler": sampler,
        "milliseconds": milliseconds,
        "candidates": 10.0 * milliseconds,
        "bias": bias,
        "bias_low": low,
        "bias_high": 2.0 * bias,
    }


REPORT = {
    "items": 100,
    "batch_size": 8,
    "full_softmax": {"milliseconds": 5.0},
    "samplers": [
        row("uniform", 1.0, 0.3, 0.2),
        row("uniform", 2.0, 0.1, 0.05),
        row("quartic", 9.0, 0.0, 0.0),
    ],
}


@pytest.mark.parametrize(
    ("name", "begins"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("b/a.PDF", b"%PDF")]
)
def test_a_picture_is_written_in_the_format_of_its_name(name: str, begins: bytes, tmp_path: Path) -> None:
    """Folders on the way are made."""
    plot_report(REPORT, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_a_picture_names_the_samplers_and_comes_out_the_same_again(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        plot_report(REPORT, tmp_path / name)
    text = (tmp_path / "one.svg").read_text("utf-8")
    assert all(f"<!-- {name} -->" in text for name in ("uniform", "quartic", "candidates K"))
    assert "Bias".lower() in text


@pytest.mark.parametrize("name", ["a", "a.jpeg.txt", "samplers.gif"])
def test_other_formats_are_refused_with_those_that_work(name: str) -> None:
    with pytest.raises(TrainingError, match=rf"--output {name}.*\.png, \.svg or \.pdf"):
        check_format(Path(name), "--output")
