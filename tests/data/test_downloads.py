"""Files of the web: a nightly catalog by its URL, with bounds and sentences."""

import http.client
import urllib.request
from collections.abc import Iterator
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread

import pytest

from tests.data.conftest import prepare_as
from turret.data.errors import FetchError
from turret.data.fetching import downloads
from turret.data.fetching.downloads import download
from turret.data.object_stores import local_copies
from turret.data.prepared import PreparedData
from turret.data.preparing.append import append

CATALOG = b"item_id,title\ni0,Blue cup\ni1,Red cup\ni2,Tall pot\n"


class _Feed(BaseHTTPRequestHandler):
    """Answers by the path: the catalog, another address, or 404."""

    def do_GET(self) -> None:
        place, _, _ = self.path.partition("?")
        if place == "/moved.csv":
            self.send_response(302)
            self.send_header("Location", "http://shop.example/items.csv")
            self.end_headers()
            return
        if place != "/items.csv":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CATALOG)))
        self.end_headers()
        self.wfile.write(CATALOG)

    def log_message(self, *values: object) -> None:
        """Say nothing."""


@pytest.fixture
def feed() -> Iterator[str]:
    """The address of a server of this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Feed) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.process
def test_a_catalog_is_read_by_its_url_and_again_when_events_are_appended(feed: str, tmp_path: Path) -> None:
    rows = "".join(f"u{user},i{item},{item}\n" for user in range(3) for item in range(3))
    (tmp_path / "log.csv").write_text("user_id,item_id,time\n" + rows)
    (tmp_path / "new.csv").write_text("user_id,item_id,time\nu9,i0,7\nu9,i7,8\n")
    items = f"{feed}/items.csv?token=hidden"
    report = prepare_as(tmp_path / "prepared", source=tmp_path / "log.csv", items=items)
    assert f"{feed}/items.csv?token=***" in report.manifest.sources
    assert "hidden" not in report.manifest.model_dump_json()
    grown = append(tmp_path / "new.csv", tmp_path / "prepared", {"items": items, "on_bad": "drop"})
    assert grown.dropped == "item not in the items file (1)"
    fields = PreparedData.open(tmp_path / "prepared").fields
    assert fields is not None
    assert fields["title"] == ["Blue cup", "Red cup", "Tall pot"]


@pytest.mark.process
@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("none.csv", r"none\.csv can't be fetched \(HTTP Error 404: Not Found\); check the address"),
        ("moved.csv", r"http://shop\.example/items\.csv is not encrypted; use https://"),
    ],
)
def test_a_server_that_refuses_or_sends_on_ends_in_a_sentence(
    feed: str, tmp_path: Path, place: str, message: str
) -> None:
    with pytest.raises(FetchError, match=message):
        download(f"{feed}/{place}", tmp_path / "items.csv")


class _Answer(BytesIO):
    """An opened address, whose body has so many bytes fewer than its head states."""

    def __init__(self, lacking: int) -> None:
        super().__init__(CATALOG)
        self.headers = {"Content-Length": str(len(CATALOG) + lacking)}

    def open(self, request: urllib.request.Request, timeout: float) -> "_Answer":
        """Return itself, as an opener does."""
        return self


@pytest.mark.parametrize(
    ("lacking", "bounds", "message"),
    [
        (100, {}, r"items\.csv broke off after 49 of 149 bytes; run the command again"),
        (0, {"MOST_BYTES": 48}, r"items\.csv has more than 48 bytes; name a copy of the file"),
        (0, {"MOST_SECONDS": -1.0}, r"items\.csv takes longer than -1 seconds; name a copy"),
    ],
)
def test_a_download_is_bounded_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: int, bounds: dict[str, float], message: str
) -> None:
    answer = _Answer(lacking)
    monkeypatch.setattr(urllib.request, "build_opener", lambda *handlers: answer)
    for name, bound in bounds.items():
        monkeypatch.setattr(downloads, name, bound)
    with pytest.raises(FetchError, match=message):
        download("https://shop.example/items.csv", tmp_path / "items.csv")


@pytest.mark.parametrize("host", ["shop.example", "127.0.0.1.shop.example", "10.0.0.7", "[::2]"])
def test_an_address_that_is_not_encrypted_is_refused(host: str, tmp_path: Path) -> None:
    """Nothing is asked of it, nor of one to which an encrypted address leads."""
    with pytest.raises(FetchError, match=r"is not encrypted; use https://, or http:// of this machine"):
        download(f"http://{host}/items.csv", tmp_path / "items.csv")
    request = urllib.request.Request("https://shop.example/items.csv")
    handler, address = downloads._Encrypted(), f"http://{host}/items.csv"
    with pytest.raises(FetchError, match="is not encrypted"):
        handler.redirect_request(request, BytesIO(), 302, "Found", HTTPMessage(), address)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://[::1/items.csv?token=hidden", "is no address of the web"),
        ("https://shop:hidden@shop.example/items.csv", "has a user and a password, which are not sent"),
    ],
)
def test_an_address_that_is_none_is_refused_without_its_secret(tmp_path: Path, url: str, words: str) -> None:
    with pytest.raises(FetchError, match=words) as refusal, local_copies([url], tmp_path / "prepared"):
        pass
    assert "hidden" not in str(refusal.value)
    assert not any(tmp_path.iterdir())


def test_an_error_of_several_lines_is_one() -> None:
    assert downloads.reason_of(http.client.BadStatusLine("a\r\n b")) == "a b"
