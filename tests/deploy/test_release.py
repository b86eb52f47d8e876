"""What `make release` refuses before it builds anything; its other checks need packages of a network."""

import re

import pytest

from deploy.release import ReleaseError, check_changelog
from tests.support.places import ROOT

HEAD = "# Changelog\n\n## [Unreleased]\n\n"
DATED = "## [0.3.0] - 2027-01-31\n\n- Something.\n\n## [0.2.0] - 2026-11-30\n\n- More.\n"


def test_a_version_with_a_dated_section_and_nothing_unreleased_can_be_published() -> None:
    check_changelog(HEAD + DATED, "0.3.0")
    check_changelog(DATED, "0.3.0")


@pytest.mark.parametrize(
    ("text", "version", "words"),
    [
        (
            HEAD + "- A change.\n\n" + DATED,
            "0.3.0",
            "entries under [Unreleased]; move them to a section [0.3.0]",
        ),
        (HEAD + DATED, "0.2.0", "the newest section of CHANGELOG.md has to be [0.2.0]"),
        (HEAD + DATED, "0.4.0", "the newest section of CHANGELOG.md has to be [0.4.0]"),
        (HEAD + DATED.replace(" - 2027-01-31", ""), "0.3.0", "[0.3.0] of CHANGELOG.md needs its date"),
        (HEAD + DATED.replace("2027-01-31", "soon"), "0.3.0", "[0.3.0] of CHANGELOG.md needs its date"),
    ],
)
def test_a_changelog_that_does_not_fit_the_version_is_refused(text: str, version: str, words: str) -> None:
    with pytest.raises(ReleaseError, match=re.escape(words)):
        check_changelog(text, version)


def test_the_changelog_is_in_the_form_of_keep_a_changelog() -> None:
    """Sections have versions and dates, the newest first, and entries stand below one of the six kinds."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    first, *dated = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert first == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", heading) for heading in dated)
    dates = [heading.rpartition(" ")[2] for heading in dated]
    assert dates == sorted(dates, reverse=True)
    kinds = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
