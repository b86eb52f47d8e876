"""Texts for people: numbers and tables, lines of progress, and addresses without their credentials."""

import io
import logging
import sys

import pytest

from tests.support.bounded import ending
from tests.support.until import until
from turret.data import text
from turret.data.errors import TurretError, text_without_credentials, without_credentials
from turret.data.progress import LOGGER, print_lines, progress


def test_markup_is_text_and_long_cells_are_folded() -> None:
    shown = text.text_table(("a", "b"), [("[red] :smile:", "x" * 50)], width=40, right=False)
    assert "[red] :smile:" in shown
    assert all(len(line) <= 40 for line in shown.splitlines())
    assert shown.count("x") == 50


def test_the_command_line_prints_each_line_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the standard error of the moment, which may be closed or missing."""
    log = logging.getLogger(LOGGER)
    before = (list(log.handlers), log.level, log.propagate)
    try:
        print_lines()
        print_lines()
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        log.info("a line")
        assert stream.getvalue() == "a line\n"
        stream.close()
        log.info("nobody reads this")
        monkeypatch.setattr(sys, "stderr", None)
        log.info("nor this")
        with progress("ranking"):
            pass
    finally:
        log.handlers[:], log.level, log.propagate = before


def test_a_long_block_without_steps_says_what_is_going_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("turret.data.progress.SECONDS_A_LINE", 1e-3)
    log = logging.getLogger(LOGGER)
    monkeypatch.setattr(log, "propagate", True)
    with caplog.at_level(logging.INFO, LOGGER), progress("fitting"):
        until(lambda: len(caplog.messages) > 1, "two lines")
    assert set(caplog.messages) == {"fitting: 0 s"}


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("redis://me:secret@host:6379/1", "redis://host:6379/1"),
        ("redis://:secret@host/0", "redis://host/0"),
        ("rediss+cluster://me:secret@a:1,b:2?prefix=x:", "rediss+cluster://a:1,b:2?prefix=x:"),
        ("redis://:sec@ret@host/0", "redis://host/0"),
        ("redis://:sec/ret@host/0", "redis://host/0"),
        ("redis://:sec#r?et@host/0", "redis://host/0"),
        ("redis://:12/34@host/0", "redis://host/0"),
        ("redis://me:secret@[::1", "redis://[::1"),
        ("me:secret@host:6379", "host:6379"),
        ("s3://key:secret@bucket/a.csv", "s3://bucket/a.csv"),
        ("spark://me:secret@host:7077", "spark://host:7077"),
        ("postgresql+psycopg2://me:secret@host/runs", "postgresql+psycopg2://host/runs"),
        ("https://me@host:8/a?x=1", "https://host:8/a?x=1"),
        (
            "https://host/a.csv?X-Amz-Signature=secret&X-Amz-Date=1&sig=secret#end",
            "https://host/a.csv?X-Amz-Signature=***&X-Amz-Date=1&sig=***#end",
        ),
        ("redis+cluster://:secret@a:1,redis://:secret@b:2", "redis+cluster://a:1,redis://b:2"),
        ("s3:/key:secret@bucket/a", "s3:/bucket/a"),  # `Path` of an address
        ("https://host/a?passwd=secret#access_token=secret", "https://host/a?passwd=***#access_token=***"),
        ("jdbc:mysql://host;user=me;password=secret", "jdbc:mysql://host;user=me;password=***"),
        # No credentials: nothing changes.
        *(
            (address, address)
            for address in (
                "s3://bucket/mail@2024/a.csv",
                "http://[::1]:8000/a@b",
                "milvus:////srv/a@b/items.db",
                "sqlite:///a/path",
                "redis://a:1,b:2/0?prefix=shop:",
                "host:6379",
                "nonsense",
                "",
            )
        ),
    ],
)
def test_an_address_is_shown_without_its_credentials(address: str, shown: str) -> None:
    assert without_credentials(address) == shown
    assert text_without_credentials(f"{address} fails: {address!r}") == (
        f"{shown} fails: {shown!r}" if ":/" in address else f"{address} fails: {address!r}"
    )


def test_every_error_is_without_them_whoever_writes_it() -> None:
    form = "redis://[[USER]:PASSWORD@]HOST"
    assert str(TurretError(form)) == form
    error = TurretError('s3://key:secret@bucket/a is gone: bad URL "http://me:secret@proxy:1"; mail a@b')
    assert str(error) == 's3://bucket/a is gone: bad URL "http://proxy:1"; mail a@b'


# Repeats that have an expression try again at each place, or in each of many ways, for what follows them.
REPEATED = (
    "a",
    "a,",
    "a1",
    "[a]:1,",
    "x:/",
    "x:/a@",
    "x://a,a",
    "@",
    "?",
    "?key",
    "key",
    ";pass",
    "[",
    "?a=",
)


def test_the_steps_for_a_text_grow_with_its_length_alone() -> None:
    """Each takes some hundredths of a second; steps of the square of a length would take many."""
    with ending():
        for start in ("x://?", ":// ,"):
            for repeated in REPEATED:
                hostile = f"{start}{repeated * (100_000 // len(repeated))}:x"
                assert len(without_credentials(hostile)) <= len(hostile)
                assert len(text_without_credentials(hostile)) <= len(hostile)
