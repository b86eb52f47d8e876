import base64
import hashlib
import re
from pathlib import Path

import pytest

from turret.training.errors import TrainingError
from turret.training.markup.document import Section, check_output, page, write_page
from turret.training.markup.elements import element


def test_a_page_allows_its_own_stylesheet_and_nothing_else() -> None:
    """The hash is that of the text between the tags, as a browser computes it."""
    made = page("<title>", "lead", [Section("one", "Part 1", element("p", "text"))])
    (style,) = re.findall(r"<style>(.*?)</style>", made, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', made)
    assert policy.replace("&#x27;", "'") == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert "<title>&lt;title&gt;</title>" in made
    assert '<a href="#one">Part 1</a>' in made
    assert '<section id="one"><h2>Part 1</h2><p>text</p></section>' in made


def test_the_stylesheet_loads_nothing_and_knows_light_and_dark() -> None:
    (style,) = re.findall(r"<style>(.*?)</style>", page("", "", []), re.DOTALL)
    assert "url(" not in style
    assert "@import" not in style
    assert "prefers-color-scheme: dark" in style


def test_a_page_is_written_in_one_step(tmp_path: Path) -> None:
    target = tmp_path / "new" / "report.html"
    write_page(target, "first")
    write_page(target, "é")
    assert target.read_text("utf-8") == "é"
    assert list(target.parent.iterdir()) == [target]


def test_a_path_that_can_hold_no_page_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"--output .*: this is a folder; name a file, such as .*html\."):
        check_output(tmp_path)
    with pytest.raises(TrainingError, match=r"--output .*report\.pdf: .* must end in \.html\."):
        check_output(tmp_path / "report.pdf")
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingError, match=r"--output .* it can't be written"):
        write_page(tmp_path / "file" / "report.html", "")
