"""The commands of docs/messy_shop.md, one after the other, on a small shop."""

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Service, output, serving
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "messy_shop.md"
SMALL = {
    "synth": ["--users", "300", "--items", "150"],  # the later options count
    "train": ["--set", "training.epochs=2", "--set", "tower.dimension=32"],
}


class Page:
    """The commands of the page in a folder."""

    def __init__(self, folder: Path) -> None:
        blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        script = "".join(blocks).rstrip("\n").replace("\\\n", " ")
        # A line of a quoted text begins with no command.
        self._commands = map(shlex.split, re.split(r"\n(?=turret |curl )", script))
        self.folder = folder

    def words(self, *words: str) -> list[str]:
        """The words of the next command, which has to begin with these."""
        command = next(self._commands)
        assert command[: len(words)] == [*words]
        return command[len(words) :]

    def turret(self, *words: str) -> str:
        """The output of the next command, which has to begin with `turret` and these words."""
        rest = self.words("turret", *words)
        return output(*words, *rest, *SMALL.get(words[-1], []), folder=self.folder)

    def curl(self, service: Service) -> dict[str, Any]:
        """The answer to the next command, which has to be a call."""
        address, *options = self.words("curl", "-s")
        given: dict[str, list[str]] = {}
        for option, value in pairwise([*options, ""]):
            given.setdefault(option, []).append(value)
        headers = dict(header.split(": ") for header in given["-H"])
        called = service.client.request(
            method=given.get("-X", ["POST"])[0],
            url=address.removeprefix("localhost:8000"),
            content=given["-d"][0],
            headers={name: self._filled(value) for name, value in headers.items()},
        )
        answer: dict[str, Any] = called.raise_for_status().json()
        return answer

    def is_over(self) -> bool:
        return next(self._commands, None) is None

    def _filled(self, text: str) -> str:
        """A text of the shell with the contents of the files that it names."""
        return re.sub(r"\$\(cat (.*?)\)", lambda found: (self.folder / found[1]).read_text().strip(), text)


def read_and_train(page: Page) -> None:
    page.turret("data", "synth")
    said = page.turret("data", "prepare")
    assert re.search(r"sessions: of [\d,]+ events without a user .* of users who log in", said)
    assert re.search(r"max_user_events = 1000 \([89],", said)
    assert "unreadable time" in said
    assert re.search(r"purchase: [\d,]+ events, target", page.turret("data", "describe"))
    assert "auto: Picked: " in page.turret("train")
    assert re.search(r"^verdict$", page.turret("evaluate"), re.MULTILINE)
    page.turret("export")
    assert ": 0 are new" not in page.turret("history", "load")


def ids(answer: dict[str, Any]) -> list[str]:
    assert not answer["degraded"]
    assert {item["source"] for item in answer["items"]} == {"towers"}
    return [item["id"] for item in answer["items"]]


@pytest.mark.process
def test_the_messy_shop_of_the_page(tmp_path: Path) -> None:
    """A log of kinds, repeats, strangers and robots becomes a service that knows the differences."""
    page = Page(tmp_path)
    read_and_train(page)
    *words, background = page.words("turret", "serve")
    assert background == "&"
    with serving(*words, folder=tmp_path) as service:
        assert page.curl(service)["stored"] == 2
        assert len(ids(page.curl(service))) == 5
        assert page.curl(service)["moved"] == 2
        assert len(ids(page.curl(service))) == 5
        assert "i0042" not in ids(page.curl(service))
        assert page.curl(service)["vector"] == "training"
        assert page.curl(service)["changed"] == 2
        page.curl(service)
        answer = page.curl(service)
        assert len(ids(answer)) == 5
        assert all(item["fields"]["stock"] > 0 for item in answer["items"])
        page.turret("history", "dump")
        # A view, a cart and a purchase of one visit are one event.
        assert re.search(r"^1 of [\d,]+ events are new", page.turret("data", "append"), re.MULTILINE)
    assert page.is_over()
