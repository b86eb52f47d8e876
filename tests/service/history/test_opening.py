import asyncio
from pathlib import Path

import pytest

from service.errors import ServiceError
from service.history.memory import MemoryHistory
from service.history.opening import open_store


def test_three_slashes_are_relative_and_four_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asyncio.run(open_store("sqlite:///here/a.sqlite").close())
    asyncio.run(open_store(f"sqlite:///{tmp_path}/there/b.sqlite").close())
    assert (tmp_path / "here" / "a.sqlite").exists()
    assert (tmp_path / "there" / "b.sqlite").exists()


def test_memory() -> None:
    assert isinstance(open_store("memory://"), MemoryHistory)


@pytest.mark.parametrize("address", ["", "sqlite", "sqlite://", "sqlite:///", "redis://x", "/a/path"])
def test_other_addresses_are_refused_with_those_that_work(address: str) -> None:
    with pytest.raises(ServiceError, match="sqlite:///PATH"):
        open_store(address)
