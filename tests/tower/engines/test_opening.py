import pytest

from turret.tower.engines.opening import engine_name, without_credentials
from turret.tower.errors import EngineError


@pytest.mark.parametrize(
    "url", ["redis://[::1", "redis://user:secret@[::1", "localhost:6379", "http://a", ""]
)
def test_what_names_no_engine_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(EngineError, match=r"names no engine; write milvus://HOST:19530") as refused:
        engine_name(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@host:6379/1", "redis://host:6379/1"),
        ("redis://user:secret@[::1", "redis://[::1"),
        ("milvus:////srv/items.db", "milvus:////srv/items.db"),
    ],
)
def test_credentials_are_left_out(url: str, shown: str) -> None:
    assert without_credentials(url) == shown
