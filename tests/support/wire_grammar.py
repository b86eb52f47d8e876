"""A grammar of valid and nearly valid HTTP/1.1: seeded cases of raw bytes, each for one connection.

A production gives one request. `HIDDEN` ones are valid and carry, in a place where it is data (a body, a
chunk extension, a trailer), a whole request or a key that must not count. `REFUSED` ones have a framing that
RFC 9112 tells a server to refuse, or to end the connection after, with a request behind them that must not be
run. `LOOSE` ones may be answered in any well-formed way.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

CRLF = b"\r\n"
HUGE = 300_000  # bytes of the largest single element


@dataclass(frozen=True)
class World:
    """What requests ask for: a body of `POST /v1/recommend`, two of `POST /v1/events`, and a header's value.

    `authorization` lets a request in. `allowed` is the body of requests that may be run; `forbidden`, which
    has that word in it, of those that may not, or that no key of their own head lets in.
    """

    ask: bytes
    allowed: bytes
    forbidden: bytes
    authorization: bytes


@dataclass
class Request:
    """Its bytes; the method that tells how its answer is read; the bytes of its body, without framing.

    `ends` where nothing behind it may be run; `count` where it is as many requests.
    """

    raw: bytes
    method: bytes = b"POST"
    body: int = 0
    ends: bool = False
    count: int = 1

    @property
    def hides(self) -> bool:
        """Whether a change of a single byte could rightly let something forbidden in."""
        return b"forbidden" in self.raw


@dataclass(frozen=True)
class Case:
    """What is sent on one connection: bytes in segments, then an `ending` (wait, half, reset, unread).

    `bodies` are the lengths of the bodies of its requests, if all of them are valid as they are sent.
    """

    number: int
    names: tuple[str, ...]
    methods: tuple[bytes, ...]
    bodies: tuple[int, ...] | None
    segments: tuple[bytes, ...]
    ending: str


@dataclass
class Head:
    """A head that is put together line by line."""

    method: bytes = b"POST"
    target: bytes = b"/v1/recommend"
    version: bytes = b"HTTP/1.1"
    lines: list[bytes] = field(default_factory=list)

    def bytes(self) -> bytes:
        """Write it, with the empty line at its end."""
        first = b" ".join((self.method, self.target, self.version))
        return CRLF.join((first, b"Host: x", *self.lines, b"", b""))


class Grammar:
    """Draws cases; equal seeds give equal cases."""

    def __init__(self, seed: int, world: World) -> None:
        self._random = Random(seed)
        self._world = world
        self._next = 0

    def case(self) -> Case:
        """Draw what one connection sends."""
        r = self._random
        self._next += 1
        names: list[str] = []
        requests: list[Request] = []
        for _ in range(r.choice((1, 1, 1, 2, 2, 3, 6))):
            pool = r.choices((SOUND, HIDDEN, REFUSED, LOOSE), (3, 3, 2, 3))[0]
            name = r.choice(sorted(pool))
            requests.append(pool[name](self))
            names.append(name)
            if requests[-1].ends:
                break
        content = b"".join(one.raw for one in requests)
        damage = r.random()
        if damage < 0.08:
            content, names = content[: r.randrange(len(content) + 1)], [*names, "truncated"]
        elif damage < 0.16 and not any(one.hides for one in requests):
            content, names = self._mutated(content), [*names, "mutated"]
        ending = r.choices(("wait", "half", "reset", "unread"), (10, 2, 2, 2))[0]
        methods = tuple(one.method for one in requests for _ in range(one.count))
        valid = all(name in SOUND or name in HIDDEN for name in names)
        bodies = tuple(one.body for one in requests) if valid else None
        return Case(self._next, tuple(names), methods, bodies, self._segments(content), ending)

    def _segments(self, content: bytes) -> tuple[bytes, ...]:
        r = self._random
        way = r.random()
        if way < 0.4 or len(content) < 2:
            return (content,)
        if way < 0.5 and len(content) < 1500:
            return tuple(content[at : at + 1] for at in range(len(content)))
        cuts = sorted(r.randrange(1, len(content)) for _ in range(r.randint(1, 6)))
        return tuple(content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True) if a < b)

    def _mutated(self, content: bytes) -> bytes:
        r, mutated = self._random, bytearray(content)
        for _ in range(r.randint(1, 4)):
            if not mutated:
                break
            at = r.randrange(len(mutated))
            byte = r.choice((0, 9, 10, 13, 32, 58, 127, 255, r.randrange(256)))
            how = r.randrange(3)
            mutated[at : at + (how != 1)] = bytes([byte]) * (how != 2)
        return bytes(mutated) or b"\0"

    # Elements

    def key(self) -> bytes:
        """The line that lets a request in."""
        return b"Authorization: " + self._world.authorization

    def size(self) -> int:
        """A length that is small most of the time and sometimes huge."""
        r = self._random
        return r.choice((1, 7, 60, 1000, 9000)) if r.random() < 0.93 else r.randrange(20_000, HUGE)

    def noise(self) -> list[bytes]:
        """Header lines of every allowed form, few and small enough for a head."""
        r = self._random
        lines = [
            *(b"X-Empty:", b"X-Space:   \t ", b"X-Same: 1", b"x-same: 2", b"Accept: */*", b"X-Obs: \xfc\xff"),
            *(b"Cookie: " + b"c" * r.choice((1, 100, 3000)), b"!#$%&'*+-.^_`|~: token", b"TE: trailers"),
            *(b"Connection: keep-alive", b"Connection: , ,x", b"Keep-Alive: timeout=5", b"Expect: nothing"),
            *(b"X-Forwarded-For: 10.1.2.3", b"Content-Language: \xff", b"Trailer: Authorization"),
        ]
        return r.sample(lines, r.choice((0, 0, 1, 3, 6)))

    def noise_bytes(self) -> bytes:
        """Bytes that are no request at all."""
        return self._random.randbytes(1 + self.size() % 2000)

    def to(self, path: bytes, *lines: bytes) -> Head:
        """A head of a JSON request, without its framing."""
        return Head(b"POST", path, lines=[*lines, b"Content-Type: application/json", *self.noise()])

    def counted(self, head: Head, body: bytes) -> Request:
        """A request whose body has a length."""
        head.lines.insert(self._random.randrange(len(head.lines) + 1), b"Content-Length: %d" % len(body))
        return Request(head.bytes() + body, head.method, len(body))

    def chunked(
        self, head: Head, body: bytes, extension: bytes = b"", trailers: tuple[bytes, ...] = ()
    ) -> Request:
        """A request whose body comes in chunks; each has `extension` behind its size."""
        r = self._random
        head.lines.append(r.choice((b"Transfer-Encoding: chunked", b"transfer-encoding:CHUNKED")))
        parts, step = [], r.choice((1, 3, 50, 4096)) if len(body) < 3000 else 4096
        for at in range(0, len(body), step):
            chunk = body[at : at + step]
            size = r.choice((b"%x", b"%X", b"000%x")) % len(chunk)
            parts.append(size + extension + CRLF + chunk + CRLF)
        end = b"".join(line + CRLF for line in trailers)
        return Request(head.bytes() + b"".join(parts) + b"0" + CRLF + end + CRLF, head.method, len(body))

    def framed(self, head: Head, body: bytes) -> Request:
        """A request whose body is sent in one of the two ways."""
        return (self.counted if self._random.random() < 0.6 else self.chunked)(head, body)

    def pick(self, *options: bytes) -> bytes:
        """One of them."""
        return self._random.choice(options)

    def smuggled(self) -> bytes:
        """A whole request that would store the forbidden event, if anything ran it."""
        body = self._world.forbidden
        head = Head(target=b"/v1/events", lines=[self.key(), b"Content-Type: application/json"])
        return head.bytes()[:-2] + b"Content-Length: %d" % len(body) + CRLF * 2 + body

    def without_key(self) -> Head:
        """The head of a request that would store the forbidden event, if a key let it in."""
        return self.to(b"/v1/events")

    @property
    def world(self) -> World:
        """What requests ask for."""
        return self._world


Production = Callable[[Grammar], Request]
SOUND: dict[str, Production] = {}
HIDDEN: dict[str, Production] = {}
REFUSED: dict[str, Production] = {}
LOOSE: dict[str, Production] = {}
