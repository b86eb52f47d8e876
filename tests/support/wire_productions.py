"""The productions of the grammar: importing this module fills its four pools."""

from tests.support.wire_grammar import CRLF, HIDDEN, LOOSE, REFUSED, SOUND, Grammar, Head, Request, production

MANY_TRAILERS = (b"X-Trailer: 0123456789",) * 20_000
LONG_TRAILER = (b"X: " + b"x" * 400_000,)


@production(SOUND)
def recommendation(g: Grammar) -> Request:
    return g.framed(g.to(b"/v1/recommend", g.key()), g.world.ask)


@production(SOUND)
def recommendation_without_key(g: Grammar) -> Request:
    return g.framed(g.to(b"/v1/recommend"), g.world.ask)


@production(SOUND)
def event(g: Grammar) -> Request:
    return g.framed(g.to(b"/v1/events", g.key()), g.world.allowed)


@production(SOUND)
def probe(g: Grammar) -> Request:
    method = g.pick(b"GET", b"GET", b"HEAD", b"OPTIONS", b"DELETE")
    target = g.pick(b"/livez", b"/readyz", b"/nowhere", b"/v1/version?a=b", b"/docs")
    return Request(Head(method, target, lines=g.noise()).bytes(), method)


@production(SOUND)
def large_body(g: Grammar) -> Request:
    body = g.world.ask.rstrip() + b" " * g.size()
    return g.framed(g.to(b"/v1/recommend", g.key()), body)


@production(SOUND)
def last(g: Grammar) -> Request:
    """A request that ends the connection; what is behind it may not be run."""
    one = g.framed(g.to(b"/v1/recommend", g.key(), b"Connection: close"), g.world.ask)
    return Request(one.raw + g.smuggled(), body=one.body, ends=True)


@production(HIDDEN)
def request_in_body(g: Grammar) -> Request:
    return g.framed(g.to(b"/v1/recommend", g.key()), g.smuggled())


@production(HIDDEN)
def request_in_body_of_get(g: Grammar) -> Request:
    return g.framed(Head(b"GET", b"/livez", lines=g.noise()), g.smuggled())


@production(HIDDEN)
def request_in_body_to_nowhere(g: Grammar) -> Request:
    return g.framed(g.to(g.pick(b"/nowhere", b"/v1/version", b"/metrics"), g.key()), g.smuggled())


@production(HIDDEN)
def request_in_body_of_expect(g: Grammar) -> Request:
    return g.framed(g.to(b"/v1/recommend", g.key(), b"Expect: 100-continue"), g.smuggled())


@production(HIDDEN)
def request_in_second_type(g: Grammar) -> Request:
    return g.framed(g.to(b"/v1/recommend", b"Content-Encoding: gzip"), g.smuggled())


@production(HIDDEN)
def key_in_trailer(g: Grammar) -> Request:
    return g.chunked(g.without_key(), g.world.forbidden, trailers=(g.key(), b"X-Forwarded-For: 10.9.9.9"))


@production(HIDDEN)
def key_in_extension(g: Grammar) -> Request:
    return g.chunked(g.without_key(), g.world.forbidden, b';a="' + g.key() + b'"')


@production(LOOSE)
def key_in_folded_line(g: Grammar) -> Request:
    head = g.without_key()
    head.lines += [b"X-Folded: a", b" " + g.key()]
    return g.counted(head, g.world.forbidden)


@production(HIDDEN)
def key_in_target(g: Grammar) -> Request:
    head = g.without_key()
    head.target += b"?" + g.key().replace(b" ", b"%20")
    return g.framed(head, g.world.forbidden)


@production(LOOSE)
def framing_in_trailer(g: Grammar) -> Request:
    trailers = (b"Content-Length: 0", b"Transfer-Encoding: identity", b"Host: y", b"Connection: close")
    return g.chunked(g.to(b"/v1/recommend", g.key()), g.smuggled(), trailers=trailers)


def refused(g: Grammar, head: Head, between: bytes = b"") -> Request:
    """A request that must be refused, and one behind it, where a wrong reading would find it."""
    return Request(head.bytes() + between + g.smuggled(), head.method, ends=True)


@production(REFUSED)
def request_in_body_of_upgrade(g: Grammar) -> Request:
    """As `curl --http2` sends it: no part of its body may be read as a request."""
    token = g.pick(b"h2c", b"websocket", b"TLS/1.0", b"x")
    lines = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: " + token, b"HTTP2-Settings: AAMAAABk")
    one = g.framed(g.to(b"/v1/recommend", g.key(), *lines), g.smuggled())
    return Request(one.raw + g.smuggled(), one.method, ends=True)


@production(REFUSED)
def two_lengths(g: Grammar) -> Request:
    head = g.to(b"/v1/recommend", b"Content-Length: 0")
    head.lines.append(b"Content-Length: 5")
    return refused(g, head)


@production(REFUSED)
def no_length(g: Grammar) -> Request:
    values = (b"+0", b"-0", b"0x0", b"0, 5", b"0;", b"0 0", b"\xb2", b"1e0", b"0_0", b"99999999999999999999")
    return refused(g, g.to(b"/v1/recommend", b"Content-Length: " + g.pick(*values)))


@production(REFUSED)
def length_and_chunks(g: Grammar) -> Request:
    lines = [b"Content-Length: 4", b"Transfer-Encoding: chunked"]
    head = g.to(b"/v1/recommend", *(lines if g.pick(b"", b"r") else lines[::-1]))
    return refused(g, head, b"0" + CRLF * 2)


@production(REFUSED)
def unknown_coding(g: Grammar) -> Request:
    values = (
        b"identity",
        b"xchunked",
        b"chunked, identity",
        b"chunked, gzip",
        b"\x0bchunked",
        b"chunke",
        b"",
    )
    return refused(g, g.to(b"/v1/recommend", b"Transfer-Encoding: " + g.pick(*values)))


@production(REFUSED)
def two_codings(g: Grammar) -> Request:
    lines = (b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity")
    return refused(g, g.to(b"/v1/recommend", *lines), b"0" + CRLF * 2)


@production(REFUSED)
def space_before_colon(g: Grammar) -> Request:
    line = g.pick(
        b"Content-Length : 300", b"Content-Length\t: 300", b"Transfer-Encoding : chunked", b": x", b"x"
    )
    return refused(g, g.to(b"/v1/recommend", line))


@production(REFUSED)
def wrong_chunk_size(g: Grammar) -> Request:
    head = g.to(b"/v1/recommend", b"Transfer-Encoding: chunked")
    sizes = (b"", b"g", b"-1", b"+1", b"0x1", b"1 1", b" 1", b"1_0", b"1" + b"0" * 16, b"f" * 40, b"1\x00")
    return refused(g, head, g.pick(*sizes) + CRLF + b"{" + CRLF + b"0" + CRLF * 2)


@production(REFUSED)
def chunk_without_end(g: Grammar) -> Request:
    head = g.to(b"/v1/recommend", b"Transfer-Encoding: chunked")
    return refused(g, head, b"1" + CRLF + b"{" + g.pick(b"", b"\n", b"\r", b"}}") + b"0" + CRLF * 2)


@production(LOOSE)
def strange_target(g: Grammar) -> Request:
    targets = (
        *(b"http://x/v1/recommend", b"*", b"x:80", b"", b"//", b"/%ff%fe", b"/%00", b"/v1/users/%2e%2e/a"),
        *(b"/\xff", b"/a b", b"/v1/users/" + b"u" * g.size(), b"/#f", b"?", b"http://[::1", b"/%zz", b"\\"),
        *(b"http://x:99999/", b"/v1/items/%C3%28/similar", b"/v1/users/%ff", b"/livez?" + b"a=b&" * g.size()),
    )
    method = g.pick(b"GET", b"POST", b"CONNECT", b"OPTIONS", b"DELETE")
    return Request(Head(method, g.pick(*targets), lines=g.noise()).bytes(), method)


@production(LOOSE)
def strange_start(g: Grammar) -> Request:
    methods = (
        b"get",
        b"FOO",
        b"GET\t",
        b"",
        b"G" * 40,
        b"PRI",
        b"M-SEARCH",
        b"GE\x00T",
        b"SOURCE",
        b"PROPFIND",
    )
    versions = (b"HTTP/1.2", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/11", b"http/1.1", b"HTTP/1.1 ", b"", b"ICY/1.0")
    head = Head(g.pick(b"GET", *methods), b"/livez", g.pick(b"HTTP/1.1", *versions))
    return Request(
        g.pick(b"", b"\r\n", b"\n", b"\r\n" * 50, b" ", b"\x00", b"\x16\x03\x01") + head.bytes(), b"GET"
    )


@production(LOOSE)
def old_version(g: Grammar) -> Request:
    head = g.to(
        b"", b"/v1/recommend", g.key(), g.pick(b"Connection: keep-alive", b"Connection: close", b"A: b")
    )
    head.version = b"HTTP/1.0"
    return g.framed(head, g.world.ask)


@production(LOOSE)
def strange_line(g: Grammar) -> Request:
    lines = (
        *(
            b"X: a\x00b",
            b"X: a\rb",
            b"X: a\nY: b",
            b" X: y",
            b"X\xff: y",
            b"X: " + b"x" * g.size(),
            b"X: \x7f",
        ),
        *(b"x" * g.size() + b": y", b"X: a\r\n\tfolded", CRLF.join([b"X: y"] * 150), b"Host: a", b"Host"),
        *(b"Expect: 100-continue", b"Expect: 200-ok", b"Content-Length: 0, 0", b"Content-Length:  0 "),
        *(b"Connection: close, upgrade", b"Upgrade: h2c", b"Connection: " + b"a," * g.size()),
    )
    return Request(Head(b"GET", b"/livez", lines=[g.pick(*lines) for _ in range(2)]).bytes(), b"GET")


@production(LOOSE)
def trailers(g: Grammar) -> Request:
    """Trailers of any number and length."""
    many = tuple(b"X-%d: y" % number for number in range(g.size() // 8))
    one = (b"X: " + b"x" * g.size(),)
    strange = (b"X", b": y", b" folded", b"X: \x00")
    found = (many, one, strange)[g.pick(b"0", b"1", b"2")[0] - 48]
    return g.chunked(g.to(b"/v1/recommend", g.key()), g.world.ask, trailers=found)


@production(LOOSE)
def endless_trailers(g: Grammar) -> Request:
    """More bytes of trailers than any head may have."""
    found = (MANY_TRAILERS, LONG_TRAILER)[g.pick(b"0", b"1")[0] - 48]
    return g.chunked(g.to(b"/v1/recommend", g.key()), g.world.ask, trailers=found)


@production(LOOSE)
def extensions(g: Grammar) -> Request:
    extension = g.pick(b";a", b";a=b", b';a="b c"', b" ;a", b";" * 20, b";a=" + b"e" * g.size())
    return g.chunked(g.to(b"/v1/recommend", g.key()), g.world.ask, extension)


@production(LOOSE)
def many_at_once(g: Grammar) -> Request:
    """More requests than a connection may have unanswered."""
    return Request(Head(b"GET", b"/livez").bytes() * 200, b"GET", count=200)


@production(LOOSE)
def large_answers(g: Grammar) -> Request:
    """Answers that fill the buffers of a client that does not read."""
    return Request(Head(b"GET", b"/openapi.json").bytes() * 12, b"GET", count=12)


@production(LOOSE)
def noise(g: Grammar) -> Request:
    return Request(g.noise_bytes())


POOLS = (SOUND, HIDDEN, REFUSED, LOOSE)
