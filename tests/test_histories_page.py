"""docs/histories.md says of the settings and the addresses what the code does."""

import re
from pathlib import Path

import pytest

from turret.service.settings import Settings
from turret.service.stores.redis.address import CLUSTER_EXAMPLE, EXAMPLE
from turret.service.stores.registry import SHIPPED

PAGE = (Path(__file__).parents[1] / "docs" / "histories.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `TURRET_(\w+)` \| ([^|]+) \|", PAGE, re.MULTILINE))
OF_HISTORIES = {
    "store",
    "history_timeout",
    "write_timeout",
    "stored_history_limit",
    "keep_days",
    "clock_skew",
}


def test_every_setting_of_histories_is_in_the_table() -> None:
    named = {name for name in Settings.model_fields if name.startswith(("breaker_", "redis_"))}
    assert {name.lower() for name in ROWS} == named | OF_HISTORIES


@pytest.mark.parametrize("name", ROWS)
def test_the_defaults_are_those_of_the_settings(name: str) -> None:
    default = Settings.model_fields[name.lower()].default
    shown = {None: "for ever", str: f"`{default}`"}.get(default if default is None else type(default))
    assert ROWS[name] == (shown or f"{default:g}")


def test_every_kind_of_address_is_there() -> None:
    assert EXAMPLE in PAGE
    assert CLUSTER_EXAMPLE in PAGE
    assert all(f"{scheme}://" in PAGE for scheme in SHIPPED)
