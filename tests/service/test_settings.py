"""The settings of a service: options before the environment, and each fault named."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import commands
from turret.service.errors import ServiceError
from turret.service.settings import Settings, read_settings
from turret.service.versions.gate import _from_environment
from turret.tower.config import OVERLAP_MINIMUM, RECALL_MINIMUM


def test_an_option_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURRET_PORT", "9001")
    monkeypatch.setenv("TURRET_HOST", "0.0.0.0")
    monkeypatch.setenv("TURRET_ADMIN_KEY", "secret-of-thirty-two-characters!")
    settings = read_settings(bundles="somewhere", port=9002)
    assert (settings.port, settings.host, settings.bundles) == (9002, "0.0.0.0", Path("somewhere"))
    assert "secret-of" not in repr(settings)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"port": 70000}, "setting port can't be 70000"),
        ({"port": "x"}, "setting port can't be 'x'"),
        ({"history_timeout": 0}, "setting history_timeout can't be 0"),
        ({"shoe_size": 43}, "setting shoe_size can't be 43"),
    ],
)
def test_a_setting_that_does_not_fit_is_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ServiceError) as caught:
        read_settings(**{"bundles": "b", **given})
    assert words in str(caught.value)


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


def test_a_complaint_names_only_options_that_there_are() -> None:
    """All that `turret serve` takes has an option; the rest is for the environment alone."""
    options = {parameter.name for parameter in commands()["serve"].params}
    for name in Settings.model_fields:
        with pytest.raises(ServiceError) as caught:
            read_settings(**{name: object()})
        assert f"TURRET_{name.upper()}" in str(caught.value)
        assert ("--" in str(caught.value)) == (name in options), name


def test_a_service_and_a_folder_ask_the_same_of_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, usual in (("overlap_minimum", OVERLAP_MINIMUM), ("recall_minimum", RECALL_MINIMUM)):
        variable = f"TURRET_{name.upper()}"
        assert getattr(Settings(), name) == _from_environment(variable, usual) == usual
        monkeypatch.setenv(variable, "0.25")
        assert getattr(Settings(), name) == _from_environment(variable, usual) == 0.25
    monkeypatch.setenv("TURRET_RECALL_MINIMUM", "much")
    with pytest.raises(ServiceError, match=r"TURRET_RECALL_MINIMUM can't be 'much'.*0\.95"):
        _from_environment("TURRET_RECALL_MINIMUM", RECALL_MINIMUM)
