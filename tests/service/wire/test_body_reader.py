import asyncio
import json
import threading
from typing import Any

import pytest

from turret.service.errors import InvalidFieldError, TooLargeError
from turret.service.latency import SHORT_BODY
from turret.service.schemas.requests import RecommendRequest
from turret.service.wire.body import BodyReader, read_bytes


def receive_of(*parts: bytes) -> Any:
    waiting = list(parts)

    async def receive() -> Any:
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    return receive


@pytest.mark.parametrize("parts", [(b"0123456789",), (b"01234", b"56789"), (b"0123456789", b"")])
def test_a_body_of_exactly_the_limit_is_read(parts: tuple[bytes, ...]) -> None:
    """Whole or in parts; one byte more is refused."""
    assert asyncio.run(read_bytes(receive_of(*parts), 10)) == b"0123456789"
    with pytest.raises(TooLargeError):
        asyncio.run(read_bytes(receive_of(*parts), 9))


@pytest.mark.fault(42)
@pytest.mark.parametrize(("size", "is_beside"), [(10, False), (SHORT_BODY, True)])
def test_long_bodies_are_parsed_outside_the_event_loop(
    size: int, is_beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    read = RecommendRequest.model_validate

    def noting(parsed: Any) -> RecommendRequest:
        threads.append(threading.get_ident())
        return read(parsed)

    monkeypatch.setattr(RecommendRequest, "model_validate", noting)

    async def scenario() -> None:
        reader = BodyReader(1_000_000)
        body = json.dumps({"filter": {"a": "x" * size}}).encode()
        assert (await reader.read(receive_of(body), RecommendRequest)).filter == {"a": "x" * size}
        assert (threads[0] != threading.get_ident()) == is_beside
        await reader.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [10, SHORT_BODY])
def test_errors_are_the_same_in_the_loop_and_in_the_thread(size: int) -> None:
    async def scenario() -> None:
        reader = BodyReader(100_000)
        with pytest.raises(InvalidFieldError) as caught:
            await reader.parse(json.dumps({"k": 0, "filter": {"a": "x" * size}}).encode(), RecommendRequest)
        assert caught.value.field == "k"
        with pytest.raises(TooLargeError):
            await reader.read(receive_of(b"x" * 100_001), RecommendRequest)
        await reader.close()

    asyncio.run(scenario())
