import pytest

from turret.training.markup.elements import Html, element, joined


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("Tom & 'Jerry\"", "Tom &amp; &#x27;Jerry&quot;"),
        ("a\x00b\x1bc\r", "a\ufffdb\ufffdc\ufffd"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("half a pair \ud800", "half a pair ?"),
    ],
)
def test_text_is_never_markup(text: str, expected: str) -> None:
    assert element("p", text) == f"<p>{expected}</p>"
    assert element("p", title=text) == f'<p title="{expected}"></p>'


def test_markup_is_kept_and_nested() -> None:
    item = element("li", "<", class_="hit")
    assert element("ul", [item, item]) == '<ul><li class="hit">&lt;</li><li class="hit">&lt;</li></ul>'
    assert joined("<", Html("<br>"), None, 3) == "&lt;<br>3"


def test_attributes_are_named_as_in_html() -> None:
    """A number has at most two decimals; None is left out."""
    made = element("text", text_anchor="end", x=1 / 3, y=2.0, width=12, class_=None)
    assert made == '<text text-anchor="end" x="0.33" y="2" width="12"></text>'
    assert element("meta", name="viewport", http_equiv="x") == '<meta name="viewport" http-equiv="x">'
