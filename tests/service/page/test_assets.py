import gzip
import re
from pathlib import Path

import pytest

from turret.service.page.assets import STATIC, page_assets

IMPORTS = re.compile(r"(?:from|import\()\s*[\"'](\.[^\"']+)[\"']")
LINKS = re.compile(r"(?:src|href)=[\"']\.?/page/([^\"']+)[\"']")
PRELOADED = re.compile(r'"([a-z]+/[a-z]+\.js)"')
HOSTS = re.compile(r"https?://([^/\s\"'`$]+)")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    (tmp_path / "index.html").write_text('<script type="module" src="/page/app/main.js"></script>')
    (tmp_path / "app" / "main.js").write_text("export const one = 1;" * 20)
    (tmp_path / "letters.woff2").write_bytes(b"\0" * 100)
    (tmp_path / "README.md").write_text("not served")
    return tmp_path


def test_files_are_named_by_the_hash_of_all_of_them(folder: Path) -> None:
    assets = page_assets(folder)
    assert assets.files.keys() == {f"{assets.digest}/app/main.js", f"{assets.digest}/letters.woff2"}
    assert assets.index.content.decode() == (
        f'<script type="module" src="/page/{assets.digest}/app/main.js"></script>'
    )
    page_assets.cache_clear()
    (folder / "app" / "main.js").write_text("export const one = 2;")
    assert page_assets(folder).digest != assets.digest


def test_texts_are_compressed_and_typefaces_are_not(folder: Path) -> None:
    files = {name.partition("/")[2]: asset for name, asset in page_assets(folder).files.items()}
    script, typeface = files["app/main.js"], files["letters.woff2"]
    assert script.compressed is not None
    assert gzip.decompress(script.compressed) == script.content
    assert script.sent_bytes == len(script.compressed)
    assert (typeface.compressed, typeface.sent_bytes) == (None, 100)
    assert script.media_type.startswith("text/javascript")


def test_all_files_of_the_page_together_are_small_when_sent() -> None:
    assets = page_assets()
    assert sum(asset.sent_bytes for asset in (assets.index, *assets.files.values())) < 200_000


def test_every_import_and_link_of_the_page_leads_to_a_file() -> None:
    for path in STATIC.rglob("*.js"):
        if "vendored" not in path.parts:
            for target in IMPORTS.findall(path.read_text("utf-8")):
                assert (path.parent / target).is_file(), f"{path.name}: {target}"
    for target in PRELOADED.findall((STATIC / "app" / "boot.js").read_text("utf-8")):
        assert (STATIC / target).is_file(), target
    for target in LINKS.findall((STATIC / "index.html").read_text("utf-8")):
        assert (STATIC / target).is_file(), target


def test_the_page_names_no_other_host() -> None:
    """But for the names of XML."""
    for path in STATIC.rglob("*"):
        if path.suffix in {".js", ".css", ".html"} and "vendored" not in path.parts:
            assert set(HOSTS.findall(path.read_text("utf-8"))) <= {"www.w3.org"}, path.name
