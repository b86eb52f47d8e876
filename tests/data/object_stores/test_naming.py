from pathlib import Path

import pytest

from turret.data.errors import DataError
from turret.data.object_stores.naming import naming_urls, with_urls

COPIES = {"s3://shop/events.csv": Path("/copy/0/events.csv"), "s3://shop/prepared/": Path("/copy/prepared")}


def test_urls_stand_for_their_copies_and_for_files_in_them() -> None:
    sentence = with_urls("/copy/0/events.csv is older than /copy/prepared/manifest.json", COPIES)
    assert sentence == "s3://shop/events.csv is older than s3://shop/prepared/manifest.json"


def test_the_errors_of_turret_name_urls_and_others_stay() -> None:
    with pytest.raises(DataError, match=r"^s3://shop/prepared is full$"), naming_urls(COPIES):
        raise DataError("/copy/prepared is full")
    with pytest.raises(OSError, match="/copy/prepared"), naming_urls(COPIES):
        raise OSError(28, "No space left on device", "/copy/prepared")
