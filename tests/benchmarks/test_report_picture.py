"""Pictures of a page, where there is a browser."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip(
    "playwright.sync_api", reason="pictures are taken with Playwright: pip install playwright"
)
from benchmarks import report_picture
from turret.training.markup.document import Section, page
from turret.training.markup.elements import element

CHROMIUM = shutil.which("chromium")


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here: apt-get install chromium")
def test_a_picture_is_taken_in_each_colour_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = {"light": tmp_path / "light.png", "dark": tmp_path / "dark.png"}
    monkeypatch.setattr(report_picture, "PICTURES", pictures)
    section = Section(report_picture.LAST_SECTION, "Training", element("p", "Curves."))
    (tmp_path / "report.html").write_text(page("Report", "", [section]), encoding="utf-8")
    report_picture.take(str(CHROMIUM), tmp_path / "report.html")
    light, dark = (path.read_bytes() for path in pictures.values())
    assert light.startswith(b"\x89PNG")
    assert light != dark
