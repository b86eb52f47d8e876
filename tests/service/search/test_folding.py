import doctest

import pytest

from turret.service.search import folding
from turret.service.search.folding import fold


def test_the_example_of_the_docstring_holds() -> None:
    assert doctest.testmod(folding).failed == 0


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Amélie", "amelie"),
        ("AMÉLIE", "amelie"),
        ("Ame\u0301lie", "amelie"),
        ("Smørrebrød på Ærø", "smorrebrod pa aero"),
        ("Łódź", "lodz"),
        ("ﬁne", "fine"),
        ("M*A*S*H (1970)", "m a s h 1970"),
        ("  two   words\n", "two words"),
        ("東京物語", "東京物語"),
        ("", ""),
        ("!?", ""),
    ],
)
def test_case_accents_and_punctuation_do_not_matter(text: str, folded: str) -> None:
    assert fold(text) == folded


def test_a_folded_text_stays_as_it_is() -> None:
    assert fold(fold("Ünïcödé: Straße")) == fold("Ünïcödé: Straße")
