import socket
from pathlib import Path

import fsspec
import pytest

from tests.data.object_stores.written import names, read, write
from turret.data.errors import MissingExtraError, SourceError
from turret.data.object_stores.objects import Objects


def test_an_object_has_no_name_below_itself_and_others_their_names(store: str) -> None:
    write(f"{store}/shop/events.csv", "a,b\n")
    write(f"{store}/shop/events/part-0.csv", "a\n")
    write(f"{store}/shopping/other.csv", "a\n")
    assert Objects(f"{store}/shop/events.csv").sizes() == {"": 4}
    assert Objects(f"{store}/shop/").sizes() == {"events.csv": 4, "events/part-0.csv": 2}
    assert Objects(f"{store}/nothing").sizes() == {}


def test_downloads_have_the_content_and_names_of_the_objects(store: str, tmp_path: Path) -> None:
    write(f"{store}/shop/events.csv", "a,b\n")
    write(f"{store}/shop/parts/0.csv", b"\x00" * 70_000)
    objects = Objects(f"{store}/shop")
    objects.download(objects.sizes(), tmp_path / "copy")
    assert (tmp_path / "copy" / "events.csv").read_text() == "a,b\n"
    assert (tmp_path / "copy" / "parts" / "0.csv").read_bytes() == b"\x00" * 70_000
    Objects(f"{store}/shop/events.csv").download({"": 4}, tmp_path / "one.csv")
    assert (tmp_path / "one.csv").read_text() == "a,b\n"


def test_the_marker_of_a_folder_is_no_file(s3: str, tmp_path: Path) -> None:
    """The consoles of stores write an empty object with a slash at its end."""
    import boto3

    bucket = s3.removeprefix("s3://")
    boto3.client("s3").put_object(Bucket=bucket, Key="shop/", Body=b"")
    write(f"{s3}/shop/events.csv", "a,b\n")
    objects = Objects(f"{s3}/shop")
    assert objects.sizes() == {"events.csv": 4}
    objects.download(objects.sizes(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["events.csv"]


def test_a_name_that_leads_out_of_the_folder_is_refused(store: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"has an object 'a/\.\./\.\./b', which no file can be called"):
        Objects(store).download({"a/../../b": 1}, tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


def test_an_object_that_changes_meanwhile_is_not_used(store: str, tmp_path: Path) -> None:
    write(f"{store}/events.csv", "a,b\n")
    with pytest.raises(
        SourceError, match=r"events\.csv has changed while it was read; run the command again"
    ):
        Objects(f"{store}/events.csv").download({"": 5}, tmp_path / "copy")


def test_what_is_uploaded_and_removed(store: str, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.npy").write_bytes(b"1")
    (tmp_path / "deep" / "b.npy").write_bytes(b"22")
    objects = Objects(f"{store}/prepared")
    objects.upload(tmp_path, ["a.npy", "deep/b.npy"])
    assert objects.sizes() == {"a.npy": 1, "deep/b.npy": 2}
    assert read(f"{store}/prepared/deep/b.npy") == b"22"
    objects.remove(["a.npy"])
    assert names(f"{store}/prepared") == ["deep/b.npy"]


@pytest.mark.parametrize("url", ["file:///etc/passwd", "shop://bucket/events.csv"])
def test_another_scheme_is_refused(url: str) -> None:
    with pytest.raises(SourceError, match=r":// is no object store; use s3:// or gs://, or a path"):
        Objects(url)


@pytest.mark.parametrize(("scheme", "extra"), [("s3", "s3"), ("gs", "gcs")])
def test_a_missing_driver_is_named_by_its_extra(
    scheme: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(url: str) -> None:
        raise ImportError("Install it")

    monkeypatch.setattr(fsspec, "url_to_fs", missing)
    with pytest.raises(MissingExtraError, match=rf"{scheme}://bucket/a .* pip install 'turret\[{extra}\]'"):
        Objects(f"{scheme}://bucket/a")


def test_a_store_that_does_not_answer_is_a_sentence(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    with pytest.raises(
        SourceError, match=rf"{s3}/events\.csv can't be read: .*{address}.*; check the address"
    ):
        Objects(f"{s3}/events.csv").sizes()


def test_a_bucket_that_is_not_there_can_not_be_written(s3: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    with pytest.raises(SourceError, match=r"s3://nothing/a can't be written: .*; check the address"):
        Objects("s3://nothing/a").upload(tmp_path, ["a"])
