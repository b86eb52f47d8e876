from typing import Any

import pytest

from tests.training.auto.facts import facts
from turret.training.auto.candidates import candidates
from turret.training.auto.reasons import Reason, data_reasons


def reasons(overrides: dict[str, object] | None = None, **others: Any) -> dict[str, Reason]:
    """The reasons that the data gives, by kind."""
    found = facts(**others)
    experiments, refused = candidates(found, overrides or {})
    return {one.kind: one for one in data_reasons(found, next(iter(experiments.values())), refused)}


def test_an_ordinary_log_has_its_order_and_its_size() -> None:
    """None of the sentences about anything else."""
    assert set(reasons()) == {"order", "size"}


@pytest.mark.parametrize(
    ("order", "kind", "words"),
    [
        (
            3.24,
            "order",
            "predicts the next item (pairs of successive items recur 3.2 times as often as in shuffled "
            "histories), so a transformer is tried.",
        ),
        (1.0, "no_order", "tells nothing of the next item (pairs of successive items recur 1.0 times"),
        (1.3, "unclear_order", "tells little of the next item (pairs of successive items recur 1.3 times"),
        (None, "unclear_order", "Too few pairs of successive items recur to tell"),
    ],
)
def test_one_of_the_sentences_about_the_order_appears(order: float | None, kind: str, words: str) -> None:
    found = reasons(order=order)
    assert {"order", "no_order", "unclear_order"} & set(found) == {kind}
    assert words in found[kind].sentence
    assert found[kind].figures == {"ratio": order}


def test_features_are_named() -> None:
    found = reasons(item_features=("genre", "price"), user_features=("age",))["features"]
    assert found.sentence == (
        "The data has features, 2 of items (genre and price) and 1 of users (age), so a candidate reads them."
    )
    assert found.figures == {"item_features": ["genre", "price"], "user_features": ["age"]}


def test_repeats_are_told_where_they_change_the_ranking() -> None:
    found = reasons(repeat_share=0.33)["repeats"]
    assert found.sentence == (
        "33% of the events repeat an item of their user, so used items are ranked too "
        "(evaluation.exclude_seen = false)."
    )
    assert "repeats" not in reasons(repeat_share=0.04)
    assert "repeats" not in reasons({"evaluation.exclude_seen": True}, repeat_share=0.33)


def test_a_large_catalog_is_told() -> None:
    """With features from a smaller size on."""
    sampled = reasons(items=200_000)["large_catalog"].sentence
    assert sampled.startswith("The catalog has 200,000 items, so a step scores a sample of the catalog")
    in_batch = reasons(items=30_000, item_features=("genre",))["large_catalog"].sentence
    assert "a step of the candidates with features scores the items of its batch only" in in_batch
    assert "large_catalog" not in reasons(items=30_000)


def test_labels_that_no_candidate_reads_are_told() -> None:
    found = reasons(has_negatives=True)["unread_labels"]
    assert "the shipped experiment labelled_pairs does" in found.sentence
    assert "unread_labels" not in reasons()


def test_the_size_gives_the_settings_that_are_used() -> None:
    found = reasons({"training.epochs": 3}, examples=98_000)["size"]
    assert found.sentence == (
        "The training part has 98,000 examples, so a batch has 1,024 of them, and training ends after 3 "
        "epochs, or 5 without improvement."
    )
    assert found.figures["epochs"] == 3


def test_a_candidate_that_the_given_settings_contradict_is_told() -> None:
    found = reasons({"tower.user.blocks": 1})["refused"]
    assert found.sentence.startswith("The candidate pooled does not fit the given settings: ")
    assert "refused" not in reasons()


def test_tastes_are_told_where_the_order_does_not_decide() -> None:
    features: dict[str, Any] = {"item_features": ("genre",), "item_tastes": {"colour": 1.0, "genre": 23.74}}
    found = reasons(order=1.0, **features)
    assert found["tastes"].sentence == (
        "Users choose by genre (two items of a user share a value so many times as often as two of the log: "
        "genre 23.7, colour 1.0), so a candidate reads little else."
    )
    assert found["tastes"].figures == {"ratios": {"colour": 1.0, "genre": 23.74}}
    assert not {"tastes", "no_tastes"} & set(reasons(order=2.0, **features))


def test_categories_that_nobody_chooses_by_are_told() -> None:
    found = reasons(order=1.0, item_features=("colour",), item_tastes={"colour": 1.0})
    assert "tastes" not in found
    assert found["no_tastes"].sentence == (
        "Users do not choose by the categories of items (two items of a user share a value so many times as "
        "often as two of the log: colour 1.0), so no candidate reads these alone."
    )
