"""What a server sent on one connection, read by a strict parser that shares nothing with the service."""

from collections.abc import Sequence
from dataclasses import dataclass

import h11


@dataclass(frozen=True)
class WireAnswer:
    """One final answer."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class MalformedAnswerError(AssertionError):
    """What came is no sequence of HTTP/1.1 answers."""


def read_answers(received: bytes, methods: Sequence[bytes], cut_off: bool) -> list[WireAnswer]:
    """Read all answers; `methods` are those of the requests, in order.

    `cut_off` allows the last answer to be incomplete: the client went away, or was given up while it read
    nothing. Raises MalformedAnswerError.
    """
    answers: list[WireAnswer] = []
    while received:
        method = methods[len(answers)] if len(answers) < len(methods) else b"GET"
        try:
            answer, received = _one(received, method, answers[-1] if answers else None)
        except h11.RemoteProtocolError as error:
            raise MalformedAnswerError(f"{error}: {received[:200]!r}") from None
        if answer is None:
            if cut_off:
                break
            raise MalformedAnswerError(f"the answer has no end: {received[:200]!r}")
        answers.append(answer)
        if method == b"HEAD" and b"close" in answer.headers.get(b"connection", b""):
            break  # the refusal of a head that could not be read has a body, as its method is not known
    return answers


def _one(received: bytes, method: bytes, before: WireAnswer | None) -> tuple[WireAnswer | None, bytes]:
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=_token(method), target=b"/", headers=[(b"host", b"x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(received)
    head: h11.Response | None = None
    body = bytearray()
    while True:
        event = client.next_event()
        if event is h11.NEED_DATA:
            return None, received
        if isinstance(event, h11.Response):
            if before is not None and b"close" in before.headers.get(b"connection", b""):
                raise MalformedAnswerError(
                    f"an answer follows one that ended the connection: {received[:200]!r}"
                )
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            answer = WireAnswer(head.status_code, dict(head.headers), bytes(body))
            return answer, client.trailing_data[0]


def _token(method: bytes) -> bytes:
    """The method as far as it decides how an answer is framed; CONNECT is never let through."""
    return method if method in (b"GET", b"HEAD", b"POST", b"OPTIONS", b"DELETE") else b"GET"
