"""The failures that the service survives, and their tests: `python -m tests.faults.table` writes
docs/reliability.md."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs" / "reliability.md"

# Number: the failure, and the behaviour of the service.
FAULTS: dict[int, tuple[str, str]] = {
    1: (
        "an index file is truncated, for example by an interrupted copy",
        "its size and SHA-256 differ from the manifest: the version is refused and counted, the live one "
        "and readiness stay",
    ),
    2: (
        "bits of an index or of the vectors are flipped",
        "the same; FAISS loads such a file without an error, so only the checksum detects it",
    ),
    3: (
        "a file's header declares terabytes",
        "it is refused before such a size is allocated; the process survives",
    ),
    4: (
        "a bundle mixes parts of two models: index and tower, dimensions, orders of the items",
        "shapes, checksums and recorded queries don't fit; it is not activated",
    ),
    5: (
        "vectors are NaN, infinite or all zero",
        "the check of finite numbers, the bounds of the norms, or the recorded queries refuse them",
    ),
    6: (
        "a bundle is read while it is being written",
        "only a pointer replaced by rename makes a version visible; incomplete folders are ignored",
    ),
    7: (
        "the publisher dies during publication",
        "the pointer is unchanged; the remaining files are removed at the next start",
    ),
    8: (
        "a mapped file is overwritten in place",
        "files are read-only; a monitor compares inode, size and times, and raises an alarm",
    ),
    9: (
        "the live version's folder is deleted, or a file in it is truncated",
        "deletion does not affect processes that have it mapped; truncation kills a worker, which is "
        "restarted",
    ),
    10: (
        "the disk is full",
        "recommendations continue; events are refused with Retry-After, and none is acknowledged in part",
    ),
    11: (
        "memory does not suffice for a second version beside the live one",
        "this is detected before loading, and the live one stays",
    ),
    12: (
        "a worker is killed under load",
        "only its own requests fail; others answer, it is restarted, no acknowledged event is lost",
    ),
    13: (
        "SIGTERM under load",
        "/readyz reports it at once, requests are still answered during the delay, running ones end, "
        "status 0",
    ),
    14: (
        "two activations at once",
        "they are serialised, or one is refused with a message; versions are never mixed",
    ),
    15: (
        "successive activations under traffic",
        "latency stays within bounds, every answer is of one version, and none is older than allowed",
    ),
    16: (
        "rollback to the previous version",
        "one call, at most a second, also when the newest folder is damaged",
    ),
    17: (
        "ten times the load that it can carry",
        "a bounded queue; further requests are refused within 10 ms with Retry-After; throughput stays "
        "near the peak, memory stays flat, and it recovers in seconds",
    ),
    18: (
        "clients that send single bytes, half-open connections, endless headers",
        "time limits on head and body, a limit on headers; no other client waits",
    ),
    19: (
        "malicious bodies: huge, deeply nested, compressed, repeated keys, invalid numbers",
        "refused quickly, counted while they arrive; no 500",
    ),
    20: (
        "k is zero, negative, huge, or larger than the catalog",
        "refused, or fewer items and `exhausted`; never a missing row, never a duplicate",
    ),
    21: (
        "unknown users, unknown items, empty histories, all items seen",
        "popular items where the towers have no input, and each item names its source; 200",
    ),
    22: (
        "filters that allow no item or one item, contradict themselves, or name unknown fields",
        "correct at any share of the catalog; no match is an empty list, an unknown field is refused",
    ),
    23: (
        "the store of histories is down, slow, or answers nonsense",
        "recommendations continue without it and report it; events are refused with Retry-After",
    ),
    24: (
        "repeated, unordered, future or very old events; a clock that jumps",
        "each counts once, ordered by time; times are limited to a window; timeouts use a monotonic clock",
    ),
    25: (
        "a crash truncates the end of the event log",
        "complete records are recovered; acknowledged events are there",
    ),
    26: (
        "wrong keys, no key, a hundred thousand guesses",
        "401, compared in constant time; keys are stored hashed and never logged, guesses are slowed down",
    ),
    27: (
        "paths and URLs in place of a version",
        "only names in the listing are versions; others are refused",
    ),
    28: (
        "a fork after threads have started",
        "workers load after the fork and share pages by mapping",
    ),
    29: (
        "a machine with other vector instructions than the one that built the index",
        "answers are equal within rounding; recorded queries allow for it",
    ),
    30: (
        "an item is withdrawn after the index was built",
        "it is excluded at once, in every worker, without a rebuild",
    ),
    31: (
        "metrics of several workers",
        "they are summed; counters never decrease, also when a worker is replaced",
    ),
    32: (
        "the sink of logs, metrics or traces is blocked or gone",
        "records are dropped and counted; no request waits",
    ),
    33: (
        "read-only root, another user, no /tmp",
        "it starts, given a folder for its state",
    ),
    34: (
        "bundles of an older or newer format",
        "refused with a message",
    ),
    35: (
        "a chunked body is followed by endless trailers, or its chunks are mostly framing",
        "bytes outside head and body are counted and refused beyond 16 KiB more than the body; a trailer "
        "never becomes a header",
    ),
    36: (
        "thousands of bodies are half sent, or announced and never sent",
        "without a valid key they are not waited for; the others take a bounded number of bytes, and no "
        "slot of an honest client",
    ),
    37: (
        "anonymous clients request open paths, hundreds at once",
        "probes have a limit of their own: each is answered with 200",
    ),
    38: (
        "a request offers another protocol, as `curl --http2` does",
        "the offer is declined: its body is read, it is answered, and the connection ends",
    ),
    39: (
        "arbitrary bytes, valid or nearly valid HTTP, split anywhere",
        "well-formed answers or the end of the connection, within the deadlines; memory and stalls of the "
        "event loop are bounded, every counter of running requests returns to zero",
    ),
    40: (
        "a request, or a key, is hidden in a body, an extension or a trailer; a broken request follows "
        "valid ones",
        "hidden requests never run and hidden keys never count; the broken one takes no answer of another "
        "request",
    ),
    41: (
        "clients request large answers and read none",
        "a request counts as running until its answer is sent; unsent bytes are bounded, the oldest "
        "answer is dropped, and a stalled one gives its slot to a new request",
    ),
    42: (
        "a body just below the limit is slow to check: wrong values, many parts, colons in texts",
        "validation stops at the first wrong value, very many parts are refused unparsed, long bodies are "
        "read outside the event loop",
    ),
    43: (
        "the file of the keys is deleted, moved, damaged or unreadable, and workers are replaced",
        "all workers keep the last keys; access never opens",
    ),
    44: (
        "no descriptor is free when a key is revoked",
        "this is logged once, the file is read again every second, and the revocation counts then",
    ),
    45: (
        "`admin.key` is replaced, or planted, while the service runs",
        "the key of the start counts until the service is restarted; the log has an error",
    ),
    46: (
        "a human-chosen admin key is guessed",
        "sixteen characters at least; guesses are limited, by address and in total",
    ),
    47: (
        "a service starts without keys",
        "one warning with the remedy",
    ),
    48: (
        "a tower reads files, loops, grows with its input, or takes seconds",
        "it is refused before it goes live, and the live version stays",
    ),
    49: (
        "an index names another file",
        "it is refused before FAISS reads it",
    ),
    50: (
        "recorded queries are too large to check",
        "they are refused unread, or unanswered",
    ),
    51: (
        "a version, a pointer, a report or an activation log is a link",
        "it is not followed; and no answer reveals the path of the folder of bundles",
    ),
    52: (
        "little address space is left",
        "a small bundle opens all the same",
    ),
    53: (
        "connections until no descriptor is left",
        "a share is reserved for files, store, versions and the admin port; too few to run is an error at "
        "the start",
    ),
    54: (
        "SIGTERM, and clients that keep connections and ignore `/readyz`",
        "each answer is the last of its connection, no connection begins after the delay, and none is reset",
    ),
    55: (
        "a worker dies, or is stopped, while the service ends",
        "another replaces it until the delay is over; a stopped one holds no connections",
    ),
    56: (
        "one client requests very long histories",
        "they are read in bounded portions, the newest events first; that answer says `degraded`, other "
        "clients' answers don't",
    ),
    57: (
        "an event id that another user has used",
        "it is a new event: ids are scoped to their user",
    ),
    58: (
        "a path that is not UTF-8, or ends with a line break",
        "it is refused, or names exactly that user, never another",
    ),
    59: (
        "a file of histories that other users can read, or that has an unknown format",
        "it is private to the service's user before it is opened; an unknown format is refused at the start",
    ),
    60: (
        "many new items are put at once",
        "the store enforces the limit exactly",
    ),
    61: (
        "an invalid time",
        "it is refused, and not read as 1970",
    ),
    62: (
        "files of a version are replaced between its check and a worker's opening",
        "only checked content is opened: touched files are compared again, another manifest is refused "
        "and logged",
    ),
    63: (
        "a check of a version never ends, takes all memory, or dies",
        "it is killed at its deadline or refused with a message; it holds no socket of the service, and "
        "nothing remains",
    ),
    64: (
        "the report of a forced check comes late",
        "it counts for no other request",
    ),
    65: (
        "a worker sends nonsense, or the system gives no process or descriptor",
        "this is logged and retried, and the others continue",
    ),
    66: (
        "activations queue behind a slow one, or a stopped worker",
        "503 with Retry-After at the deadline; a stopped worker delays no activation",
    ),
    67: (
        "the folder of keys of an open service is unreadable for a while",
        "it refuses requests until the folder is readable, logs it once, and opens again; only an "
        "existing file closes it permanently",
    ),
    68: (
        "a replica is down, hangs or dies during an activation",
        "the call names it; when it is back, it serves the new version from its first answer on",
    ),
    69: (
        "the Redis with the record of the live version is down, lost, or restored from an older state",
        "each replica serves its version, changes are refused with a message, and a lost record is written "
        "again",
    ),
    70: (
        "a replica can't open the live version, or finds other data in place of the record",
        "it answers 503 and says why, so that a proxy asks another one, and changes nothing for the others",
    ),
    71: (
        "activations through several replicas at once, and requests with `min_version`",
        "they take turns; no answer of any replica is older than an acknowledged activation",
    ),
    72: (
        "a retraining is killed at any point, or started twice",
        "the next run continues or begins again without lost or doubled events; the second one is refused",
    ),
    73: (
        "the service has no rights to the folder of bundles",
        "it does not start, or keeps the live version and refuses activations, with a message",
    ),
    74: (
        "a backup is damaged, or its disk is full",
        "a damaged one is refused before anything is touched; one without room is no backup",
    ),
}


class Shown(NamedTuple):
    """A test that shows the behaviour in a failure."""

    path: Path
    name: str


@cache
def shown() -> dict[int, list[Shown]]:
    """The tests marked `@pytest.mark.fault(NUMBER)`, by number; read off the source."""
    found: dict[int, list[Shown]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        everywhere = set(_numbers(_marks(module)))
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for number in sorted({*_numbers(node.decorator_list), *everywhere}):
                    found[number].append(Shown(path.relative_to(TESTS.parent), node.name))
    return dict(found)


def _marks(module: ast.Module) -> list[ast.expr]:
    """What a module gives all its tests: `pytestmark = ...`, or a list of marks."""
    given = [one.value for one in module.body if isinstance(one, ast.Assign) and _is_pytestmark(one)]
    return [mark for value in given for mark in (value.elts if isinstance(value, ast.List) else [value])]


def _is_pytestmark(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets)


def _numbers(marks: Iterable[ast.expr]) -> Iterator[int]:
    for mark in marks:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.fault":
            yield from (one.value for one in mark.args if isinstance(one, ast.Constant))  # type: ignore[misc]


# Parts that a library offers too, with the measurement that decides.
OWN_PARTS = (
    "`QueueHandler` and `QueueListener` cost the event loop 7.2 microseconds a log line, the queue of "
    "`telemetry/log_sink.py` 0.13; both never block. structlog and python-json-logger format a line in the "
    "thread that logs it, ours in the thread that writes it.",
    "redis-py's pool takes 91 to 134 microseconds of processor for a read and 221 to 323 for a script with "
    "WAIT, in two round trips (SCRIPT EXISTS); `stores/redis/connections.py` takes 47 to 68 in one.",
    "purgatory's circuit breaker reads the clock that can be set, admits every call while half open, and "
    "tells no time for `Retry-After`; pybreaker knows no asyncio; so `tower/engines/circuit.py` is ours.",
    "FastAPI keeps the last of repeated keys and validates bodies in the event loop, up to 150 ms for a "
    "megabyte; `wire/body.py` refuses repeated keys and reads long bodies in a thread. Its routing costs as "
    "much as a ranking, so `POST /v1/recommend` is answered in front of it.",
    "FastAPI's page at /docs loads scripts from a public network, which the content security policy forbids; "
    "`http/openapi/docs_page.py` needs none.",
    "A socket per worker (SO_REUSEPORT) loses the waiting connections of a worker that hangs or dies; "
    "`process/connection_balancer.py` shares one socket.",
    "`prometheus_client`'s multiprocess mode takes about 10 microseconds a request, `telemetry/table.py` 1; "
    "counters survive a worker without files.",
    "OpenTelemetry's spans and context take 72 microseconds of the event loop a request at a share of 0.05; "
    "`telemetry/tracing.py` queues a tuple in 0.7, and its thread makes the spans with the SDK.",
    "uvicorn's `limit_concurrency` refuses without Retry-After, and uvicorn limits neither the size of heads "
    "and bodies nor the time in which they arrive; `service/wire` extends its protocol (rows 17, 18, 35, "
    "36, 41).",
)


def page() -> str:
    """docs/reliability.md."""
    tests = shown()
    lines = [
        "# Failures",
        "",
        "Each row is a failure of production, the behaviour of the service, and at least one test that",
        "exposes the real process to it. `make nightly` runs all of them. `python -m tests.faults.table`",
        "writes this page.",
        "",
        "| # | failure | behaviour | tests |",
        "|---|---|---|---|",
    ]
    for number, (fault, behaviour) in FAULTS.items():
        named = [f"[`{one.name}`](../{one.path})" for one in tests.get(number, ())]
        lines.append(f"| {number} | {fault} | {behaviour} | {'<br>'.join(named)} |")
    lines += ["", "## Own parts instead of a library", "", *(f"- {reason}" for reason in OWN_PARTS)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
