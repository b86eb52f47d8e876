from typing import Any

import pytest

from turret.service.errors import ServiceError
from turret.service.page.page_settings import admin_url
from turret.service.settings import read_settings


@pytest.mark.parametrize(
    ("settings", "hostname", "url"),
    [
        ({}, "127.0.0.1", "http://127.0.0.1:8001/"),
        ({}, "localhost", "http://localhost:8001/"),
        ({}, "::1", "http://[::1]:8001/"),
        ({}, "shop.example", None),
        ({}, "", None),
        ({"admin_host": "0.0.0.0"}, "shop.example", "http://shop.example:8001/"),
        ({"admin_port": 9000}, "localhost", "http://localhost:9000/"),
        ({"admin_port": 0}, "localhost", None),
        ({"admin_port": "same"}, "localhost", None),
    ],
)
def test_the_admin_port_is_named_to_those_who_can_reach_it(
    settings: dict[str, Any], hostname: str, url: str | None
) -> None:
    assert admin_url(read_settings(port=8000, **settings), hostname) == url


def test_origins_of_pictures_are_read_from_a_list_and_checked() -> None:
    origins = read_settings(page_pictures="https://img.example.com, http://127.0.0.1:9000").page_pictures
    assert origins == ("https://img.example.com", "http://127.0.0.1:9000")
    assert read_settings(page_pictures="").page_pictures == ()


@pytest.mark.parametrize(
    "text", ["img.example.com", "https://img.example.com/a", "https://a; script-src *", "*", "'self'"]
)
def test_no_origin_can_loosen_the_policy(text: str) -> None:
    with pytest.raises(ServiceError, match="is not an origin; send scheme and host"):
        read_settings(page_pictures=text)


def test_origins_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURRET_PAGE_PICTURES", "https://img.example.com")
    assert read_settings().page_pictures == ("https://img.example.com",)
