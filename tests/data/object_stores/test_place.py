from pathlib import Path

import pytest
from pydantic import TypeAdapter

from turret.data.object_stores.place import Place, is_url


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket/events.csv", "s3://bucket/events.csv"),
        ("GS://bucket/a b", "GS://bucket/a b"),
        ("events.csv", Path("events.csv")),
        ("/data/s3:/events.csv", Path("/data/s3:/events.csv")),
        ("C://events.csv", Path("C://events.csv")),
        ("s3://", Path("s3://")),
        (Path("events.csv"), Path("events.csv")),
    ],
)
def test_a_place_with_a_scheme_is_a_url_and_keeps_its_slashes(text: str | Path, expected: str | Path) -> None:
    place = TypeAdapter(Place).validate_python(text)
    assert (place, type(place)) == (expected, type(expected))
    assert is_url(text) == isinstance(expected, str)
