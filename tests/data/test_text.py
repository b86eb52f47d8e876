"""Numbers and tables as texts."""

import pytest

from turret.data import text


def test_a_table_has_its_first_column_to_the_left_and_lines_between_sections() -> None:
    rows = [("a", "1"), ("bb", "20"), None, ("sum", "21")]
    shown = text.text_table(("name", "n"), rows, "title", "caption")
    lines = [line.rstrip() for line in shown.splitlines()]
    assert lines[0].strip() == "title"
    assert lines[-1].strip() == "caption"
    assert lines[4:8] == ["│ a    │  1 │", "│ bb   │ 20 │", "├──────┼────┤", "│ sum  │ 21 │"]


def test_markup_is_text_and_long_cells_are_folded() -> None:
    shown = text.text_table(("a", "b"), [("[red] :smile:", "x" * 50)], width=40, right=False)
    assert "[red] :smile:" in shown
    assert all(len(line) <= 40 for line in shown.splitlines())
    assert shown.count("x") == 50


def test_a_metric_has_four_digits_and_its_interval() -> None:
    value = {"mean": -0.12345, "low": -0.2, "high": 0.00004}
    assert text.with_interval(value) == "-0.1235 [-0.2000, 0.0000]"
    assert text.signed_with_interval(value) == "-0.1235 [-0.2000, +0.0000]"
    assert text.with_interval(0.5) == "0.5000"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ([text.percent(one) for one in (0.0123, 0.5)], ["1.2 %", "50 %"]),
        ([text.count(one) for one in (None, 1234.4)], ["", "1,234"]),
        ([text.size(one) for one in (0.4e6, 340e6, 1.24e9, 12e12)], ["1 MB", "340 MB", "1.2 GB", "12 TB"]),
        ([text.duration(one) for one in (5.4, 29, 300, 11_000)], ["5.4 s", "29 s", "5.0 min", "3.1 h"]),
    ],
)
def test_numbers_are_written_as_people_read_them(shown: list[str], expected: list[str]) -> None:
    assert shown == expected
