"""Commands that are refused: tests/refusals/*.toml lists them with phrases of their messages.

A `[[command]]` has `words`, perhaps an exit `status` other than 1, and rows of `refused`: what is given,
and one phrase or several. In the words, `{given}` stands for what is given, and `{NAME.EXTENSION}` for a
file that holds it; without either, it follows as further words. Other names in braces are fixtures.
"""

import re
import shlex
import sqlite3
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

import turret.cli
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig

TABLES = sorted((Path(__file__).parent / "refusals").glob("*.toml"))


@dataclass(frozen=True)
class Refusal:
    """A command line with what it is given, its exit status, and phrases of its message."""

    words: str
    given: str
    status: int
    phrases: tuple[str, ...]

    def line(self, place: Callable[[str], object]) -> list[str]:
        """The words of the command, with `place(name)` for each name in braces."""
        takes = re.search(r"\{(given|\w+\.\w+)\}", self.words)
        words = shlex.split(self.words if takes else f"{self.words} {self.given}")
        return [re.sub(r"\{([\w.]+)\}", lambda name: str(place(name[1])), word) for word in words]


def refusals() -> Iterator[object]:
    for path in TABLES:
        for command in tomllib.loads(path.read_text("utf-8"))["command"]:
            for given, *phrases in command["refused"]:
                case = Refusal(command.get("words", ""), given, command.get("status", 1), tuple(phrases))
                yield pytest.param(case, id=f"{path.stem}: {case.words} {given}"[:120])


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of thirty users, each with the same eight items in turn."""
    rows = [f"u{user},i{(user + step) % 8},{step}" for user in range(30) for step in range(8)]
    path = tmp_path_factory.mktemp("events") / "events.csv"
    path.write_text("\n".join(["user,item,time", *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def prepared(events: Path) -> Path:
    """The events, prepared."""
    prepare(PrepareConfig(source=events), events.parent / "prepared")
    return events.parent / "prepared"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with one empty table."""
    path = tmp_path_factory.mktemp("database") / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table orders (user_id)")
    return path


@pytest.fixture
def nothing(tmp_path: Path) -> Path:
    """A path where nothing is."""
    return tmp_path / "nothing"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An empty file."""
    (tmp_path / "file").touch()
    return tmp_path / "file"


@pytest.fixture
def nobody() -> str:
    """An address where no service answers: the port is reserved and not in use."""
    return "http://127.0.0.1:1"


@pytest.mark.parametrize("refusal", list(refusals()))
def test_a_refusal_is_one_sentence_and_leaves_nothing_behind(
    refusal: Refusal, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """On standard error. A command line that can't be parsed has status 2, and a box around its message."""

    def place(name: str) -> object:
        if name == "given":
            return refusal.given
        if "." in name:
            (tmp_path / name).write_text(refusal.given)
            return tmp_path / name
        return request.getfixturevalue(name)

    words = refusal.line(place)
    before = sorted(tmp_path.iterdir())
    refused = CliRunner().invoke(turret.cli.app, words)
    assert (refused.exit_code, refused.stdout) == (refusal.status, ""), refused.exception
    message = " ".join(refused.stderr.replace("│", " ").split()) if refusal.status == 2 else refused.stderr
    assert refusal.phrases
    assert [phrase for phrase in refusal.phrases if phrase not in message] == [], message
    assert refusal.status == 2 or re.fullmatch("turret: .+\n", refused.stderr)
    assert sorted(tmp_path.iterdir()) == before
