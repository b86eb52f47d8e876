"""The commands of docs/first_week.md and docs/messy_shop.md, one after the other, on small shops."""

import csv
import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.first_week import ORDERS, PRODUCTS, Shop, write_shop
from tests.support.command_line import Service, invoke, output, serving
from tests.support.places import ROOT
from turret.client import Client, Event
from turret.data.prepared import PreparedData

# The log that the shop of the first week exports ends here; later orders reach the service.
MONDAY = "2025-10-15"
PUBLIC, ADMIN = "localhost:8000", "localhost:8001"


class Page:
    """The commands of a page in a folder; those with a text in `further` get its words, too."""

    def __init__(self, name: str, folder: Path, further: dict[str, str]) -> None:
        text = (ROOT / "docs" / name).read_text("utf-8")
        blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        script = "".join(blocks).rstrip("\n").replace("\\\n", " ")
        # A line of a quoted text begins with no command.
        self._commands = map(shlex.split, re.split(r"\n(?=turret |curl )", script))
        self.folder = folder
        self._further = further

    def words(self, *words: str) -> list[str]:
        """The words of the next command, which has to begin with these."""
        command = next(self._commands)
        assert command[: len(words)] == [*words]
        further = [more for text, more in self._further.items() if text in " ".join(command)]
        return command[len(words) :] + shlex.split(" ".join(further))

    def turret(self, *words: str, service: Service | None = None) -> str:
        """The output of the next command, which has to begin with `turret` and these words."""
        return output(*words, *self._asking(service, *words), folder=self.folder)

    def refusal(self, *words: str, status: int, service: Service) -> str:
        """The message of the next command, which is refused."""
        done = invoke(*words, *self._asking(service, *words), folder=self.folder)
        assert done.returncode == status, done.stderr
        return done.stderr

    def serve(self) -> list[str]:
        """The words of the next command, which starts the service in the background."""
        *words, background = self.words("turret", "serve")
        assert background == "&"
        return words

    def curl(self, service: Service) -> dict[str, Any]:
        """The answer to the next command, which has to be a call."""
        address, *options = self.words("curl", "-s")
        given: dict[str, list[str]] = {}
        for option, value in pairwise([*options, ""]):
            given.setdefault(option, []).append(value)
        headers = dict(header.split(": ") for header in given["-H"])
        called = service.client.request(
            method=given.get("-X", ["POST"])[0],
            url=address.removeprefix(PUBLIC),
            content=given["-d"][0],
            headers={name: self._filled(value) for name, value in headers.items()},
        )
        answer: dict[str, Any] = called.raise_for_status().json()
        return answer

    def is_over(self) -> bool:
        return next(self._commands, None) is None

    def _asking(self, service: Service | None, *words: str) -> list[str]:
        """The words after these of the next command, with the addresses of the service."""
        places = (
            {} if service is None else {f"http://{PUBLIC}": service.url, f"http://{ADMIN}": service.admin}
        )
        return [places.get(word, word) for word in self.words("turret", *words)]

    def _filled(self, text: str) -> str:
        """A text of the shell with the contents of the files that it names."""
        return re.sub(r"\$\(cat (.*?)\)", lambda found: (self.folder / found[1]).read_text().strip(), text)


def train_by_choice(page: Page) -> str:
    """Train the experiment that the data picks; give its evaluation beside all baselines."""
    assert "auto: Picked: " in page.turret("train")
    judged = page.turret("evaluate")
    assert re.search(r"^verdict$", judged, re.MULTILINE)
    return judged


def ids(answer: dict[str, Any]) -> list[str]:
    assert not answer["degraded"]
    assert {item["source"] for item in answer["items"]} == {"towers"}
    return [item["id"] for item in answer["items"]]


# ---- The first week


def write_first_log(folder: Path) -> list[list[str]]:
    """Write the files of the shop with the orders until MONDAY, and give the rows of the later ones."""
    write_shop(folder, Shop(users=600, items=150, categories=8, events_a_user=12, seed=10))
    with (folder / ORDERS).open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    time = header.index("ordered_at")
    with (folder / ORDERS).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *(row for row in rows if row[time] < MONDAY)])
    return [row for row in rows if row[time] >= MONDAY]


def send_orders(orders: list[list[str]], service: Service, known: PreparedData) -> int:
    """Send the orders of the week with ids as events, and give the number that was stored."""
    events: list[Event] = [
        {"event_id": f"order-{n}", "user_id": user, "item_id": item, "time": f"{time.replace(' ', 'T')}Z"}
        for n, (_, user, item, time, *_) in enumerate(orders)
        if user.startswith("k") and known.item_ids.row(item) is not None
    ]
    with Client(service.url) as client:
        return client.store_events(events).stored


def grow(page: Page, sent: int) -> None:
    """The stored events become training data, and the next version is trained on them."""
    before = PreparedData.open(page.folder / "var" / "prepared")
    page.turret("history", "dump")
    assert "events are new" in page.turret("data", "append")
    grown = PreparedData.open(page.folder / "var" / "prepared")
    assert len(grown.event_items) == len(before.event_items) + sent
    assert "The bundle was trained on events until" in page.turret("train")
    page.turret("evaluate")
    page.turret("export")


@pytest.mark.process
def test_the_first_week(tmp_path: Path) -> None:
    """From messy files to answers by user id; then a worse model is refused, and a warm start goes live."""
    orders = write_first_log(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {ORDERS, PRODUCTS}
    # A first model that has more to learn, a warm start that goes on, and a model that learns nothing.
    settings = {
        "run": "training.epochs=2",
        "week": "training.epochs=10",
        "short": "training.learning_rate=1e-6",
    }
    page = Page(
        "first_week.md", tmp_path, {f"--run var/{run}": f"--set {one}" for run, one in settings.items()}
    )
    said = page.turret("data", "prepare")
    for words in ("read as features are name (text)", "category (category)", "dropped: "):
        assert words in said
    assert re.search(r"(Better than|Worse than|No clear difference from) EASE", train_by_choice(page))
    assert page.turret("export").splitlines()[-1] == "var/bundles/first"
    with serving(*page.serve(), folder=tmp_path) as service:
        assert ": 0 are new" not in page.turret("history", "load")
        assert " towers " in page.turret("recommend", service=service)
        assert len(ids(page.curl(service))) == 5
        assert page.curl(service)["stored"] == 1
        sent = send_orders(orders, service, PreparedData.open(tmp_path / "var" / "prepared"))
        assert "first" in page.turret("versions")
        grow(page, 1 + sent)
        page.turret("train")
        assert "never evaluated" in page.turret("export")
        refused = page.refusal("activate", "short", status=3, service=service)
        assert "short is worse than first: ndcg@10 is " in refused
        assert service.client.get("/v1/version").json()["version"] == "first"
        accepted = page.turret("activate", "week", service=service)
        assert "week is not worse than first: ndcg@10 is " in accepted
        assert service.client.get("/v1/version").json()["version"] == "week"
        page.turret("versions")
    assert page.is_over()


# ---- The messy shop


@pytest.mark.process
def test_the_messy_shop(tmp_path: Path) -> None:
    """A log of kinds, repeats, strangers and robots becomes a service that knows the differences."""
    small = {
        "data synth": "--users 300 --items 150",
        "turret train": "--set training.epochs=2 --set tower.dimension=32",
    }
    page = Page("messy_shop.md", tmp_path, small)  # of two options the later one counts
    page.turret("data", "synth")
    said = page.turret("data", "prepare")
    assert re.search(r"sessions: of [\d,]+ events without a user .* of users who log in", said)
    assert re.search(r"max_user_events = 1000 \([89],", said)
    assert "unreadable time" in said
    assert re.search(r"purchase: [\d,]+ events, target", page.turret("data", "describe"))
    train_by_choice(page)
    page.turret("export")
    assert ": 0 are new" not in page.turret("history", "load")
    with serving(*page.serve(), folder=tmp_path) as service:
        assert page.curl(service)["stored"] == 2
        assert len(ids(page.curl(service))) == 5
        assert page.curl(service)["moved"] == 2
        assert len(ids(page.curl(service))) == 5
        assert "i0042" not in ids(page.curl(service))
        new, again = page.curl(service), page.curl(service)
        assert {*ids(again), "i0042"}.isdisjoint(ids(new))
        assert ids(again)
        assert all(one["uses"]["kinds"] for one in again["explanation"]["items"])
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
