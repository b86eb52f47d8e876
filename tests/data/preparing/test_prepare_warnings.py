from collections.abc import Callable
from pathlib import Path

import pytest

from turret.data.configuration import load_configuration
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig

Warn = Callable[..., tuple[str, ...]]


@pytest.fixture
def warn(tmp_path: Path) -> Warn:
    """Prepares a CSV text and returns the warnings of the report."""

    def make(text: str, **overrides: object) -> tuple[str, ...]:
        (tmp_path / "events.csv").write_text(text)
        named = {name.replace("__", "."): value for name, value in overrides.items()}
        config = load_configuration(PrepareConfig, overrides={"source": tmp_path / "events.csv", **named})
        return prepare(config, tmp_path / "prepared", overwrite=True).warnings

    return make


def test_how_times_were_read_is_said(warn: Warn) -> None:
    text = "user_id,item_id,timestamp\n1,1,978300760\n"
    assert warn(text) == ("time: 'timestamp' holds seconds since 1970",)


RETURNS = "user_id,item_id,timestamp,quantity\n1,a,1,3\n1,b,2,-1\n"


def test_returns_that_nobody_asked_to_drop_are_said(warn: Warn) -> None:
    sentence = (
        "column 'quantity' holds values of zero and below and is not used; "
        "--quantity quantity drops such rows as returns"
    )
    assert sentence in warn(RETURNS)


@pytest.mark.parametrize(
    ("text", "overrides"),
    [
        (RETURNS, {"columns__quantity": "quantity", "on_bad": "drop"}),
        (RETURNS, {"columns__weight": "quantity", "on_bad": "drop"}),
        (RETURNS.replace("-1", "1"), {}),
        (RETURNS.replace("quantity", "amount"), {}),
        (RETURNS.replace(",3", ",few").replace(",-1", ",none"), {}),
    ],
)
def test_quantities_that_are_used_or_tell_no_returns_are_not_mentioned(
    warn: Warn, text: str, overrides: dict[str, object]
) -> None:
    assert not [sentence for sentence in warn(text, **overrides) if "quantity" in sentence]


def test_targets_that_can_not_be_hit_are_counted(warn: Warn) -> None:
    """User 1 ends with an item of the first days, user 2 with a new one."""
    text = "user_id,item_id,timestamp\n1,a,1\n1,b,2\n1,a,3\n2,a,1\n2,b,2\n2,c,3\n"
    *_, sentence = warn(text)
    assert sentence == (
        "16.7% of the events repeat an item of their user, and 1 of 2 test targets were used before; "
        "evaluation and the service leave out used items by default, so these can't be hit: if users come "
        "back for the same items, train with --set evaluation.exclude_seen=false, else prepare with "
        "--duplicates first, which keeps only first uses"
    )
    assert len(warn(text, filters__duplicates="first")) == 1
