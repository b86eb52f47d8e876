from pathlib import Path

import pytest

from turret.data.errors import DataError
from turret.data.manifest import FileHash, Manifest, fingerprint, hash_files


def test_files_are_hashed_by_name_and_the_manifest_itself_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_bytes(b"abc")
    (tmp_path / "manifest.json").write_text("{}")
    # The SHA-256 of "abc" as FIPS 180-2 gives it in its appendix B.1.
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert hash_files(tmp_path) == {"sub/a": FileHash(sha256=expected, bytes=3)}


def test_the_fingerprint_tells_names_contents_and_the_meaning_of_times() -> None:
    one, two = FileHash(sha256="1", bytes=1), FileHash(sha256="2", bytes=1)
    assert fingerprint({"a": one, "b": two}, "number") == fingerprint({"b": two, "a": one}, "number")
    variants = [
        ({"a": one}, "number"),
        ({"b": one}, "number"),
        ({"a": two}, "number"),
        ({"a": one}, "timestamp"),
    ]
    assert len({fingerprint(files, kind) for files, kind in variants}) == 4


def test_a_folder_without_a_readable_manifest_is_not_prepared_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is not prepared data.*turret data prepare"):
        Manifest.load(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format_version": 2}')
    with pytest.raises(DataError, match=r"can't read .*manifest\.json \(format_version: .* 1\); prepare"):
        Manifest.load(tmp_path)


def test_a_url_in_place_of_a_folder_is_to_be_copied_first() -> None:
    with pytest.raises(DataError, match=r"copy it here first: `turret data fetch s3://shop/prepared`"):
        Manifest.load(Path("s3://shop/prepared"))
