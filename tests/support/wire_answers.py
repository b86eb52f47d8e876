"""What a server sent on one connection, read by a strict parser that shares nothing with the service."""

from collections.abc import Sequence
from typing import NamedTuple

import h11


class WireAnswer(NamedTuple):
    """One final answer."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


def read_answers(received: bytes, methods: Sequence[bytes], cut_off: bool) -> list[WireAnswer]:
    """Read all answers; `methods` are those of the requests, in order.

    `cut_off` allows the last answer to be incomplete: the client went away, or was given up while it read
    nothing. Fails for anything that is no sequence of HTTP/1.1 answers.
    """
    answers: list[WireAnswer] = []
    while received:
        assert not answers or b"close" not in answers[-1].headers.get(b"connection", b""), received[:200]
        method = methods[len(answers)] if len(answers) < len(methods) else b"GET"
        try:
            answer, rest = _one(received, method)
        except h11.RemoteProtocolError as error:
            raise AssertionError(f"{error}: {received[:200]!r}") from None
        if answer is None:
            assert cut_off, f"the answer has no end: {received[:200]!r}"
            break
        answers.append(answer)
        if method == b"HEAD" and b"close" in answer.headers.get(b"connection", b""):
            break  # the refusal of a head that could not be read has a body, as its method is not known
        received = rest
    return answers


def _one(received: bytes, method: bytes) -> tuple[WireAnswer | None, bytes]:
    """The first answer, None without its end; and what is behind it."""
    client = h11.Connection(h11.CLIENT)
    # Only these decide how an answer is framed; CONNECT is never let through.
    method = method if method in (b"GET", b"HEAD", b"POST", b"OPTIONS", b"DELETE") else b"GET"
    client.send(h11.Request(method=method, target=b"/", headers=[(b"host", b"x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(received)
    head: h11.Response | None = None
    body = bytearray()
    while (event := client.next_event()) is not h11.NEED_DATA:
        if isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            return WireAnswer(head.status_code, dict(head.headers), bytes(body)), client.trailing_data[0]
    return None, received
