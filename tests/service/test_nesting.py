import time

import pytest

from service.nesting import is_too_deep


@pytest.mark.parametrize(
    ("body", "deep"),
    [
        (b"{}", False),
        (b"[" * 3 + b"]" * 3, False),
        (b"[" * 4 + b"]" * 4, True),
        (b'{"a":[{"b":[]}]}', True),
        (b"[" + b",".join([b"[[]]"] * 100) + b"]", False),
        (b"[" + b",".join([b"[[]]"] * 100) + b",[[[]]]]", True),
        (b'["[[[[[[[", "]]]", "\\"[[[[[[[["]', False),
        (b"[[[[", True),
        (b"]]]][[[", False),
        (b'["' + b"[" * 50, False),
    ],
)
def test_what_is_deeper_than_three_is_told(body: bytes, deep: bool) -> None:
    """Brackets in texts count for nothing, and those that never close as if they did."""
    assert is_too_deep(body, 3) is deep


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 1_000_000,
        b"[" * 500_000 + b"]" * 500_000,
        b"[],{}," * 160_000,
        b"[" * 40 + b'"' + b'\\"' * 500_000,
        b"[" * 40 + b'"' * 999_999,
        b"[" * 40 + b'""' * 500_000,
    ],
    ids=["open", "deep", "flat", "endless", "quotes", "texts"],
)
def test_a_megabyte_of_anything_takes_no_time(body: bytes) -> None:
    """Seconds would be a search that goes back; tens of milliseconds are a pass over the bytes."""
    start = time.process_time()
    is_too_deep(body)
    assert time.process_time() - start < 0.5
