"""Sentences with URLs in place of their local copies."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from turret.data.errors import TurretError, without_credentials


def with_urls(sentence: str, copies: Mapping[str, Path]) -> str:
    """Return a sentence that names URLs where it named their copies."""
    for url, copy in copies.items():
        sentence = sentence.replace(copy.as_posix(), without_credentials(url.rstrip("/")))
    return sentence


@contextmanager
def naming_urls(copies: Mapping[str, Path]) -> Iterator[None]:
    """Let a `TurretError` of the block name URLs in place of their copies."""
    try:
        yield
    except TurretError as error:
        error.args = tuple(with_urls(part, copies) if isinstance(part, str) else part for part in error.args)
        raise
