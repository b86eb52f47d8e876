import pytest

from turret.service.stores.sqlite.random_text import text_between


@pytest.mark.parametrize(
    ("first", "last"), [("u00000", "u09999"), ("a", "z"), ("7", "7"), ("ü1", "ü3"), ("a", "ab"), ("", "b")]
)
def test_a_text_is_not_before_the_first(first: str, last: str) -> None:
    assert all(text_between(first, last) >= first for _ in range(200))


def test_keys_between_are_all_reached() -> None:
    keys = [f"u{number:03d}" for number in range(30)]
    texts = [text_between(keys[0], keys[-1]) for _ in range(2000)]
    reached = {next((key for key in keys if key >= text), None) for text in texts}
    assert len(reached & set(keys)) > 25
