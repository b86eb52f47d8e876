"""Pairs of queries and items: their parts, their items, their texts, and what is refused."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.data.conftest import Prepare, prepare_as
from turret.data.errors import ConfigurationError, DataError
from turret.data.features.columns import Bag
from turret.data.features.texts import grams
from turret.data.prepared import PARTS, PreparedData
from turret.data.preparing import catalogs
from turret.data.preparing.append import append


@pytest.fixture
def pairs(tmp_path: Path) -> Prepare:
    """Prepare rows of pairs under overrides, and open the result."""

    def make(rows: dict[str, list[object]], **overrides: object) -> PreparedData:
        pl.DataFrame(rows).write_parquet(tmp_path / "pairs.parquet")
        given = {"queries__source": tmp_path / "pairs.parquet", **overrides}
        return PreparedData.open(prepare_as(tmp_path / "prepared", **given).folder)

    return make


def queries_of(data: PreparedData, part: str) -> set[object]:
    """The queries with a pair in a part."""
    starts, ends = data.bounds(part)  # type: ignore[arg-type]
    return set(data.users.ids(np.flatnonzero(ends > starts)))


def targets(data: PreparedData, query: str, part: str) -> set[object]:
    """The items of a query in a part."""
    row = data.users.row(query)
    assert row is not None
    return set(data.item_ids.ids(data.targets(row, part).tolist()))  # type: ignore[arg-type]


SPLIT = {
    "question": ["how to pay", "where is it", "where is it", "send back", "late parcel", "pay how"],
    "answer": ["by card", "on its way", "in the shop", "with the label", "on its way", "by card"],
    "split": ["train", "train", "test", "dev", "test", "train"],
}


def test_all_rows_of_a_query_are_in_its_earliest_part(pairs: Prepare) -> None:
    data = pairs(SPLIT)
    assert data.has_queries
    assert queries_of(data, "train") == {"how to pay", "where is it", "pay how"}
    assert queries_of(data, "validation") == {"send back"}
    assert queries_of(data, "test") == {"late parcel"}
    assert targets(data, "where is it", "train") == {"on its way", "in the shop"}
    # Without earlier events: a query has no history.
    assert all(data.history(row, "end").size == 0 for row in range(len(data.users)))


def test_without_a_column_a_hash_of_the_text_divides_queries(pairs: Prepare) -> None:
    texts = [f"question number {n}" for n in range(400)]
    first = pairs({"query": texts, "item": [n % 7 for n in range(400)]})
    shuffled = pairs({"query": [*texts[::-1], "another"], "item": [n % 5 for n in range(401)]})
    sizes = [len(queries_of(first, part)) for part in PARTS]
    assert sum(sizes) == 400
    assert 280 < sizes[0] < 360
    assert 20 < sizes[1] < 60
    assert 20 < sizes[2] < 60
    for part in PARTS:
        assert queries_of(first, part) <= queries_of(shuffled, part)


def test_a_split_column_without_validation_leaves_it_to_the_hash(pairs: Prepare) -> None:
    texts = [f"question number {n}" for n in range(200)]
    data = pairs({"query": texts, "item": ["a", "b"] * 100, "split": ["train"] * 180 + ["test"] * 20})
    assert queries_of(data, "test") == set(texts[180:])
    assert 5 < len(queries_of(data, "validation")) < 40


def test_the_texts_of_both_sides_share_one_vocabulary(pairs: Prepare) -> None:
    data = pairs(SPLIT)
    (query,), (answer,) = data.user_features.features, data.item_features.features
    assert query.name == "query"
    assert query.values == answer.values
    known = {gram for text in SPLIT["answer"] for gram in grams(str(text), True)}
    known |= {gram for text in ("how to pay", "where is it", "pay how") for gram in grams(text, True)}
    assert set(query.values) == known
    column = data.user_features.columns["query"]
    assert isinstance(column, Bag)
    row = data.users.row("late parcel")
    assert row is not None
    # A gram of test queries alone has no code.
    found = [query.values[code - 1] for code in column.row(row)]
    assert found == [gram for gram in grams("late parcel", True) if gram in known]


def test_the_vocabulary_has_the_grams_of_most_texts(pairs: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "MOST_GRAMS", 2)
    rows = {"query": ["ab x", "ab y"], "item": ["ab cd", "cd ab ab"], "split": ["train", "train"]}
    data = pairs(rows)
    assert data.user_features.features[0].values == ("#ab", "=ab")
    column = data.item_features.columns["item"]
    assert isinstance(column, Bag)
    row = data.item_ids.row("cd ab ab")
    assert row is not None
    assert sorted(column.row(row).tolist()) == [1, 1, 2, 2]


def test_items_of_a_file_are_all_ranked(pairs: Prepare, tmp_path: Path) -> None:
    items = tmp_path / "answers.csv"
    items.write_text("item_id,title\n1,by card\n2,on its way\n3,nobody asks for this\n")
    data = pairs(
        {"query": ["how to pay", "where is it"], "item": [1, 2], "split": ["train"] * 2}, items=items
    )
    assert data.item_ids.ids(range(3)) == [1, 2, 3]
    assert data.fields["title"][2] == "nobody asks for this"
    assert not data.cold_items().ids


def test_labels_become_negatives_wherever_they_stand(pairs: Prepare) -> None:
    rows = {
        "query": ["a", "a", "a", "b", "b"],
        "item": ["before", "right", "behind", "right", "never"],
        "label": [0, 1, 0, 1, 0],
        "split": ["train", "train", "train", "test", "test"],
    }
    data = pairs(rows)
    assert data.negatives is not None
    assert data.manifest.negatives == 3
    assert len(data.item_ids) == 4


@pytest.mark.parametrize(
    ("query", "item"), [("text", "intent"), ("query", "item_id"), ("place", "count"), ("target", "question")]
)
def test_stored_questions_are_the_training_queries(pairs: Prepare, query: str, item: str) -> None:
    """Under any names of the columns."""
    named = {"queries__query": query, "columns__item": item}
    texts = [f"pay {n}" for n in range(6)] + [f"ship {n}" for n in range(3)] + ["pay new", "lonely"]
    answers = ["money"] * 6 + ["parcel"] * 3 + ["money", "alone"]
    parts = ["train"] * 6 + ["train"] * 3 + ["test", "train"]
    data = pairs({query: texts, item: answers, "split": parts}, queries__match="questions", **named)
    stored = [*map(str, data.item_ids.ids(range(len(data.item_ids))))]
    held = queries_of(data, "validation")  # by the hash
    assert set(stored) == {*texts[:9], "lonely"} - held
    assert dict(zip(data.fields["question"], data.fields["answer"], strict=True))["pay 1"] == "money"
    for text in queries_of(data, "train"):
        paired = targets(data, str(text), "train")
        assert paired
        assert text not in paired
        assert {str(one).split()[0] for one in paired} == {str(text).split()[0]}
    assert targets(data, "pay new", "test") == {one for one in stored if one.startswith("pay")}


def test_a_question_of_several_answers_is_stored_with_each(pairs: Prepare) -> None:
    rows = {"query": ["a", "a", "b", "c"], "item": ["x", "y", "x", "y"], "split": ["train"] * 4}
    data = pairs(rows, queries__match="questions")
    assert set(data.item_ids.ids(range(4))) == {"a (x)", "a (y)", "b", "c"}
    assert targets(data, "b", "train") == {"a (x)"}
    assert targets(data, "a", "train") == {"b", "c"}


def test_long_texts_have_a_digest_for_an_id(pairs: Prepare) -> None:
    long = "word " * 200
    for column, field in (("answer", "answer"), ("item_id", "text")):
        data = pairs({"question": ["a b", "c d"], column: [long, "short"], "split": ["train", "train"]})
        assert sorted(map(len, map(str, data.item_ids.ids(range(2))))) == [5, 16]
        assert long in data.fields[field]


def test_a_pair_without_an_item_is_a_bad_row(pairs: Prepare) -> None:
    with pytest.raises(DataError, match=r"null item: 1\n.*row 2, query b, item"):
        pairs({"query": ["a", "b"], "item": ["c", " "], "split": ["train"] * 2})


def test_queries_of_one_answer_are_a_group(pairs: Prepare) -> None:
    rows = {"query": ["a 1", "a 2", "b 1", "b 2", "a 3"], "item": ["a", "a", "b", "b", "a"]}
    split = ["train"] * 4 + ["test"]
    data = pairs({**rows, "split": split}, queries__match="questions")
    groups = data.query_groups()
    assert groups is not None
    of = dict(zip(map(str, data.users.ids(range(len(data.users)))), groups.tolist(), strict=True))
    assert len({of[query] for query in of if query.startswith("a")}) == 1
    assert {of[query] for query in of if query.startswith("a")} != {of[q] for q in of if q.startswith("b")}
    assert pairs({**rows, "split": split}).query_groups() is None


def test_pairs_are_not_appended(pairs: Prepare, tmp_path: Path) -> None:
    data = pairs(SPLIT)
    (tmp_path / "more.csv").write_text("question,answer\nhow so,because\n")
    with pytest.raises(ConfigurationError, match=r"holds queries, .* prepare all pairs again"):
        append(tmp_path / "more.csv", data.folder)


def test_a_context_tells_queries_of_one_text_apart(pairs: Prepare) -> None:
    rows = {
        "query": ["more like it", "more like it", "more like it", "another"],
        "item": ["a", "b", "a", "b"],
        "history": [["x", "y"], ["z", "y"], ["x", "y"], None],
        "split": ["train"] * 4,
    }
    data = pairs(rows, queries__context=["history"])
    assert len(data.users) == 3
    contexts = {}
    for user in range(len(data.users)):
        values = data.user_values(user)
        contexts[tuple(values["history"])] = (data.query_text(user), values["query"])
        starts, ends = data.bounds("train")
        found = set(data.item_ids.ids(data.event_items[starts[user] : ends[user]]))
        assert found == {("x", "y"): {"a"}, ("z", "y"): {"b"}, (): {"b"}}[tuple(values["history"])]
    assert contexts == {
        ("x", "y"): ("more like it", "more like it"),
        ("z", "y"): ("more like it", "more like it"),
        (): ("another", "another"),
    }
