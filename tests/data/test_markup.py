"""HTML in the texts of a catalog."""

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.conftest import prepare_as
from tests.support.bounded import ending
from turret.data.prepared import PreparedData
from turret.data.reading.markup import plain_text


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Cups &amp; plates", "Cups & plates"),
        ("Caf&eacute;&nbsp;cr&#232;me &#x201c;XL&#x201D; ", "Café crème “XL”"),
        ("<p>Soft.</p><p>Warm.<br/>Red</p>", "Soft. Warm. Red"),
        ('H<sub>2</sub>O, <A HREF="/x?a=1&amp;b=2">more</A>', "H2O, more"),
        ("<style>p {x}</style><!-- <p> -->Cup<script>if (a<b) {}</script>", "Cup"),
        ("&lt;p&gt;Soft&lt;/p&gt;", "<p>Soft</p>"),
        ("&amp;lt;", "&lt;"),
    ],
)
def test_entities_are_letters_and_tags_are_left_out_once(text: str, plain: str) -> None:
    assert plain_text(text) == plain


@pytest.mark.parametrize(
    "text",
    [
        "a < b",
        "3 <4> 5",
        "R&D, AT&T",
        "I <3 you </3",
        "a <b and c> d",
        "List<Item> by <NAME>",
        "Size <XL",
        "<p",
        "<!-- unclosed",
        "https://shop/?a=1&region=eu&copy=2;x",
        "&notit; &; &#; &#12x; &nosuch;",
        "two  blanks\nand \xa0 lines",
        "\ud800",
    ],
)
def test_texts_that_only_look_like_html_stay(text: str) -> None:
    assert plain_text(text) == text


@given(st.text('ab<>/&;!-#xp=" \n', max_size=40))
def test_a_text_never_grows_and_one_without_signs_of_html_is_its_own(text: str) -> None:
    assert len(plain_text(text)) <= len(text)
    bare = text.replace("<", "").replace("&", "")
    assert plain_text(bare) == bare


def test_the_work_for_a_text_grows_with_its_length_alone() -> None:
    with ending():
        for part in (
            "<p ",
            "<p>",
            "<",
            "&",
            "&#",
            "&amp",
            "<!--",
            "<!-->",
            "<script>",
            "<a b='",
            "</",
            "<style ",
        ):
            hostile = part * (400_000 // len(part))
            assert len(plain_text(hostile)) <= len(hostile)


@pytest.mark.parametrize("is_text", [True, False], ids=["csv", "parquet"])
def test_titles_categories_and_lists_are_read_without_html_unless_it_is_kept(
    tmp_path: Path, is_text: bool
) -> None:
    frame = pl.DataFrame(
        {
            "item_id": ["a&amp;b", "c", "d", "e"],
            "title": ["Tom &amp; Co", "<b>Red</b> cup", "R&D", None],
            "category": ["Home &gt; Cups", "Home &gt; Pots", "Home &gt; Cups", "&nbsp;"],
            "tags": [["a &amp; b", "x"], ["x"], ["a &amp; b"], []],
        }
    )
    items, log = tmp_path / f"items.{'csv' if is_text else 'parquet'}", tmp_path / "log.csv"
    if is_text:
        frame.with_columns(pl.col("tags").list.join("|")).write_csv(items)
    else:
        frame.write_parquet(items)
    log.write_text("user_id,item_id,timestamp\nu,a&amp;b,1\nu,c,2\nu,d,3\nu,e,4\n")
    features = {"item_features__multi": ["tags"], "item_features__path": ["category"]}
    report = prepare_as(tmp_path / "prepared", source=log, items=items, **features)
    data = PreparedData.open(report.folder)
    assert data.item_ids.ids(range(4)) == ["a&amp;b", "c", "d", "e"], "ids are those of the log"
    assert data.fields["title"] == ["Tom & Co", "Red cup", "R&D", None]
    assert data.fields["tags"] == [["a & b", "x"], ["x"], ["a & b"], []]
    values = {one.name: one.values for one in data.item_features.features}
    assert values["category"] == ("Home", "Home > Cups", "Home > Pots")
    assert "amp" not in values["title"]
    assert [data.item_features.raw(row).get("category") for row in (0, 3)] == ["Home > Cups", None]
    (said,) = [one for one in report.warnings if "HTML" in one]
    assert said == (
        f"{items.name}: tags and entities of HTML, such as &amp;, were decoded in 8 texts; --keep-html "
        "leaves them"
    )
    kept = prepare_as(tmp_path / "kept", source=log, items=items, format__keep_html=True, **features)
    assert PreparedData.open(kept.folder).fields["title"] == frame["title"].to_list()
    assert not any("HTML" in one for one in kept.warnings)
