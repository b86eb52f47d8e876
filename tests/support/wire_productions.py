"""The productions of the grammar, by their names."""

from tests.support.wire_grammar import CRLF, HIDDEN, LOOSE, REFUSED, SOUND, Grammar, Head, Request

MANY_TRAILERS = (b"X-Trailer: 0123456789",) * 20_000
LONG_TRAILER = (b"X: " + b"x" * 400_000,)
EMPTY = b"0" + CRLF * 2  # the last chunk
CHUNKED = b"Transfer-Encoding: chunked"


def ask(g: Grammar, *lines: bytes) -> Head:
    """The head of a recommendation that a key lets in."""
    return g.to(b"/v1/recommend", g.key(), *lines)


def ending(one: Request, g: Grammar) -> Request:
    """The same request with one behind it that may not be run."""
    return Request(one.raw + g.smuggled(), one.method, one.body, ends=True)


def probe(g: Grammar) -> Request:
    method = g.pick(b"GET", b"GET", b"HEAD", b"OPTIONS", b"DELETE")
    target = g.pick(b"/livez", b"/readyz", b"/nowhere", b"/v1/version?a=b", b"/docs")
    return Request(Head(method, target, lines=g.noise()).bytes(), method)


SOUND |= {
    "recommendation": lambda g: g.framed(ask(g), g.world.ask),
    "recommendation_without_key": lambda g: g.framed(g.to(b"/v1/recommend"), g.world.ask),
    "event": lambda g: g.framed(g.to(b"/v1/events", g.key()), g.world.allowed),
    "probe": probe,
    "large_body": lambda g: g.framed(ask(g), g.world.ask.rstrip() + b" " * g.size()),
    "last": lambda g: ending(g.framed(ask(g, b"Connection: close"), g.world.ask), g),
}


def key_in_target(g: Grammar) -> Request:
    head = g.without_key()
    head.target += b"?" + g.key().replace(b" ", b"%20")
    return g.framed(head, g.world.forbidden)


NOWHERE = (b"/nowhere", b"/v1/version", b"/metrics")
HIDDEN |= {
    "request_in_body": lambda g: g.framed(ask(g), g.smuggled()),
    "request_in_body_of_get": lambda g: g.framed(Head(b"GET", b"/livez", lines=g.noise()), g.smuggled()),
    "request_in_body_to_nowhere": lambda g: g.framed(g.to(g.pick(*NOWHERE), g.key()), g.smuggled()),
    "request_in_body_of_expect": lambda g: g.framed(ask(g, b"Expect: 100-continue"), g.smuggled()),
    "request_in_second_type": lambda g: g.framed(
        g.to(b"/v1/recommend", b"Content-Encoding: gzip"), g.smuggled()
    ),
    "key_in_trailer": lambda g: g.chunked(
        g.without_key(), g.world.forbidden, trailers=(g.key(), b"X-Forwarded-For: 10.9.9.9")
    ),
    "key_in_extension": lambda g: g.chunked(g.without_key(), g.world.forbidden, b';a="' + g.key() + b'"'),
    "key_in_target": key_in_target,
}


def refused(g: Grammar, *lines: bytes, between: bytes = b"") -> Request:
    """A request that must be refused, and one behind it, where a wrong reading would find it."""
    return Request(g.to(b"/v1/recommend", *lines).bytes() + between + g.smuggled(), ends=True)


def request_in_body_of_upgrade(g: Grammar) -> Request:
    """As `curl --http2` sends it: no part of its body may be read as a request."""
    token = g.pick(b"h2c", b"websocket", b"TLS/1.0", b"x")
    lines = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: " + token, b"HTTP2-Settings: AAMAAABk")
    return ending(g.framed(ask(g, *lines), g.smuggled()), g)


LENGTHS = (b"+0", b"-0", b"0x0", b"0, 5", b"0;", b"0 0", b"\xb2", b"1e0", b"0_0", b"99999999999999999999")
CODINGS = (b"identity", b"xchunked", b"chunked, identity", b"chunked, gzip", b"\x0bchunked", b"chunke", b"")
SPACED = (b"Content-Length : 300", b"Content-Length\t: 300", b"Transfer-Encoding : chunked", b": x", b"x")
SIZES = (b"", b"g", b"-1", b"+1", b"0x1", b"1 1", b" 1", b"1_0", b"1" + b"0" * 16, b"f" * 40, b"1\x00")
ENDS = (b"", b"\n", b"\r", b"}}")
REFUSED |= {
    "request_in_body_of_upgrade": request_in_body_of_upgrade,
    "two_lengths": lambda g: refused(g, b"Content-Length: 0", b"Content-Length: 5"),
    "no_length": lambda g: refused(g, b"Content-Length: " + g.pick(*LENGTHS)),
    "length_and_chunks": lambda g: refused(g, b"Content-Length: 4", CHUNKED, between=EMPTY),
    "chunks_and_length": lambda g: refused(g, CHUNKED, b"Content-Length: 4", between=EMPTY),
    "unknown_coding": lambda g: refused(g, b"Transfer-Encoding: " + g.pick(*CODINGS)),
    "two_codings": lambda g: refused(g, CHUNKED, b"Transfer-Encoding: identity", between=EMPTY),
    "space_before_colon": lambda g: refused(g, g.pick(*SPACED)),
    "wrong_chunk_size": lambda g: refused(g, CHUNKED, between=g.pick(*SIZES) + CRLF + b"{" + CRLF + EMPTY),
    "chunk_without_end": lambda g: refused(g, CHUNKED, between=b"1" + CRLF + b"{" + g.pick(*ENDS) + EMPTY),
}


def key_in_folded_line(g: Grammar) -> Request:
    head = g.without_key()
    head.lines += [b"X-Folded: a", b" " + g.key()]
    return g.counted(head, g.world.forbidden)


def strange_target(g: Grammar) -> Request:
    targets = (
        *(b"http://x/v1/recommend", b"*", b"x:80", b"", b"//", b"/%ff%fe", b"/%00", b"/v1/users/%2e%2e/a"),
        *(b"/\xff", b"/a b", b"/v1/users/" + b"u" * g.size(), b"/#f", b"?", b"http://[::1", b"/%zz", b"\\"),
        *(b"http://x:99999/", b"/v1/items/%C3%28/similar", b"/v1/users/%ff", b"/livez?" + b"a=b&" * g.size()),
    )
    method = g.pick(b"GET", b"POST", b"CONNECT", b"OPTIONS", b"DELETE")
    return Request(Head(method, g.pick(*targets), lines=g.noise()).bytes(), method)


METHODS = (
    *(b"GET", b"get", b"FOO", b"GET\t", b"", b"G" * 40, b"PRI", b"M-SEARCH", b"GE\x00T", b"SOURCE"),
    b"PROPFIND",
)
VERSIONS = (
    *(b"HTTP/1.1", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/11", b"http/1.1", b"HTTP/1.1 ", b""),
    b"ICY/1.0",
)
STARTS = (b"", b"\r\n", b"\n", b"\r\n" * 50, b" ", b"\x00", b"\x16\x03\x01")


def strange_start(g: Grammar) -> Request:
    head = Head(g.pick(*METHODS), b"/livez", g.pick(*VERSIONS))
    return Request(g.pick(*STARTS) + head.bytes(), b"GET")


def old_version(g: Grammar) -> Request:
    head = ask(g, g.pick(b"Connection: keep-alive", b"Connection: close", b"A: b"))
    head.version = b"HTTP/1.0"
    return g.framed(head, g.world.ask)


def strange_line(g: Grammar) -> Request:
    lines = (
        *(b"X: a\x00b", b"X: a\rb", b"X: a\nY: b", b" X: y", b"X\xff: y", b"X: " + b"x" * g.size()),
        *(b"x" * g.size() + b": y", b"X: a\r\n\tfolded", CRLF.join([b"X: y"] * 150), b"Host: a", b"Host"),
        *(b"Expect: 100-continue", b"Expect: 200-ok", b"Content-Length: 0, 0", b"Content-Length:  0 "),
        *(b"Connection: close, upgrade", b"Upgrade: h2c", b"Connection: " + b"a," * g.size(), b"X: \x7f"),
    )
    return Request(Head(b"GET", b"/livez", lines=[g.pick(*lines) for _ in range(2)]).bytes(), b"GET")


def trailing(g: Grammar, trailers: tuple[bytes, ...], body: bytes = b"") -> Request:
    return g.chunked(ask(g), body or g.world.ask, trailers=trailers)


def extensions(g: Grammar) -> Request:
    extension = g.pick(b";a", b";a=b", b';a="b c"', b" ;a", b";" * 20, b";a=" + b"e" * g.size())
    return g.chunked(ask(g), g.world.ask, extension)


FRAMING = (b"Content-Length: 0", b"Transfer-Encoding: identity", b"Host: y", b"Connection: close")
LOOSE |= {
    "key_in_folded_line": key_in_folded_line,
    "framing_in_trailer": lambda g: trailing(g, FRAMING, g.smuggled()),
    "strange_target": strange_target,
    "strange_start": strange_start,
    "old_version": old_version,
    "strange_line": strange_line,
    "some_trailers": lambda g: trailing(g, tuple(b"X-%d: y" % number for number in range(g.size() // 8))),
    "long_trailer": lambda g: trailing(g, (b"X: " + b"x" * g.size(),)),
    "strange_trailers": lambda g: trailing(g, (b"X", b": y", b" folded", b"X: \x00")),
    # More bytes of trailers than any head may have.
    "endless_trailers": lambda g: trailing(g, MANY_TRAILERS),
    "endless_trailer": lambda g: trailing(g, LONG_TRAILER),
    "extensions": extensions,
    # More requests than a connection may have unanswered, and answers that fill a client's buffers.
    "many_at_once": lambda g: Request(Head(b"GET", b"/livez").bytes() * 200, b"GET", count=200),
    "large_answers": lambda g: Request(Head(b"GET", b"/openapi.json").bytes() * 12, b"GET", count=12),
    "noise": lambda g: Request(g.noise_bytes()),
}
POOLS = (SOUND, HIDDEN, REFUSED, LOOSE)
