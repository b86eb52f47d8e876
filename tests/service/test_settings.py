from pathlib import Path
from typing import Any

import pytest

from service.errors import ServiceError
from service.settings import read_settings


def test_what_is_given_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURRET_PORT", "9001")
    monkeypatch.setenv("TURRET_HOST", "0.0.0.0")
    monkeypatch.setenv("TURRET_ADMIN_KEY", "secret")
    settings = read_settings(bundles="somewhere", port=9002)
    assert (settings.port, settings.host, settings.bundles) == (9002, "0.0.0.0", Path("somewhere"))
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({"port": 70000}, "port", "70000"),
        ({"port": "x"}, "port", "'x'"),
        ({"history_timeout": 0}, "history_timeout", "0"),
        ({"shoe_size": 43}, "shoe_size", "43"),
        ({"bundles": None}, "bundles", "None"),
    ],
)
def test_a_setting_that_does_not_fit_is_named(given: dict[str, Any], name: str, value: str) -> None:
    with pytest.raises(ServiceError) as caught:
        read_settings(**{"bundles": "b", **given})
    assert f"setting {name} can't be {value}" in str(caught.value)


def test_an_empty_key_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURRET_ADMIN_KEY", "")
    with pytest.raises(ServiceError, match="setting admin_key"):
        read_settings(bundles="b")
