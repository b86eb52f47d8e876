from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import commands
from turret.service.errors import ServiceError
from turret.service.settings import Settings, read_settings


def test_what_is_given_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURRET_PORT", "9001")
    monkeypatch.setenv("TURRET_HOST", "0.0.0.0")
    monkeypatch.setenv("TURRET_ADMIN_KEY", "secret-of-sixteen")
    settings = read_settings(bundles="somewhere", port=9002)
    assert (settings.port, settings.host, settings.bundles) == (9002, "0.0.0.0", Path("somewhere"))
    assert "secret-of" not in repr(settings)


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


@pytest.mark.parametrize(
    "key", ["4711", "fifteen-letters", "sixteen letters!", "sixteen-létters!", "sixteen-letters\n"]
)
def test_an_admin_key_that_is_short_or_can_not_be_sent_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ServiceError, match=r"setting admin_key: it h.*openssl rand") as caught:
        read_settings(bundles="b", admin_key=key)
    assert key not in str(caught.value)
    assert read_settings(bundles="b", admin_key="sixteen-letters!").admin_key


@pytest.mark.parametrize(
    ("given", "admin_port"),
    [
        ({}, 8001),
        ({"port": 9000}, 9001),
        ({"port": 0}, 0),
        ({"admin_port": 5}, 5),
        ({"admin_port": "same"}, None),
    ],
)
def test_the_admin_port_is_the_one_after_unless_it_is_given(
    given: dict[str, Any], admin_port: int | None
) -> None:
    assert read_settings(**given).admin_port == admin_port


def test_the_keys_are_beside_the_bundles_and_not_among_them() -> None:
    assert read_settings(bundles="a/b").keys == Path("a/keys.json")
    assert read_settings(bundles="a/b", keys="c.json").keys == Path("c.json")


def test_the_admin_key_is_among_the_bundles_unless_it_is_put_elsewhere() -> None:
    assert read_settings(bundles="a/b").admin_key_file == Path("a/b/admin.key")
    assert read_settings(bundles="a/b", admin_key_file="c.key").admin_key_file == Path("c.key")


def test_a_complaint_names_only_options_that_there_are() -> None:
    """All that `turret serve` takes has an option; the rest is for the environment alone."""
    options = {parameter.name for parameter in commands()["serve"].params}
    for name in Settings.model_fields:
        with pytest.raises(ServiceError) as caught:
            read_settings(**{name: object()})
        assert f"TURRET_{name.upper()}" in str(caught.value)
        assert ("--" in str(caught.value)) == (name in options), name
