"""The first week of a shop: the commands of docs/first_week.md, one after the other, on a messy log."""

import csv
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from benchmarks.first_week import ORDERS, PRODUCTS, Shop, write_shop
from tests.support.command_line import Service, run, serving
from turret.data.prepared import PreparedData

PAGE = Path(__file__).parents[2] / "docs" / "first_week.md"
SHOP = Shop(users=600, items=150, categories=8, events_a_user=12, seed=10)
# The log that the shop exports ends here; later orders reach the service.
MONDAY = "2025-10-15"
# A first model that has more to learn, a warm start that goes on, and a model that learns nothing.
SETTINGS = {
    "var/run": {"training.epochs": "2"},
    "var/week": {"training.epochs": "10"},
    "var/short": {"training.learning_rate": "1e-6"},
}
PUBLIC, ADMIN = "localhost:8000", "localhost:8001"


def lines_of(page: Path) -> list[list[str]]:
    """The words of each command in the page's shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    script = "".join(blocks).replace("\\\n", " ")
    return [shlex.split(line) for line in script.splitlines()]


def write_first_log(folder: Path) -> list[dict[str, str]]:
    """Write the files of the shop with the orders until MONDAY, and give the later ones."""
    write_shop(folder, SHOP)
    with (folder / ORDERS).open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    place = header.index("ordered_at")
    with (folder / ORDERS).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *(row for row in rows if row[place] < MONDAY)])
    return [dict(zip(header, row, strict=True)) for row in rows if row[place] >= MONDAY]


class Week:
    """The commands of the page in a folder, and their output by their words."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands = iter(lines_of(PAGE))

    def next(self, *words: str, status: int = 0, service: Service | None = None) -> str:
        """Run the next command, which has to begin with these words, and give its output, or its refusal."""
        command = next(self.commands)
        assert command[: len(words) + 1] == ["turret", *words]
        settings = SETTINGS.get(command[command.index("--run") + 1], {}) if "--run" in command else {}
        extra = [word for item in settings.items() for word in ("--set", "=".join(item))]
        if service is not None:
            addresses = {f"http://{PUBLIC}": service.url, f"http://{ADMIN}": service.admin}
            command = [addresses.get(word, word) for word in command]
        done = run(*command[1:], *extra, folder=self.folder)
        assert done.returncode == status, done.stderr
        return done.stderr if status else done.stdout

    def serve(self) -> list[str]:
        """The words of the next command, which starts the service in the background."""
        turret, command, *words, background = next(self.commands)
        assert (turret, command, background) == ("turret", "serve", "&")
        return words

    def send(self, service: Service) -> dict[str, Any]:
        """Send the request of the next command, a call of curl."""
        command = next(self.commands)
        assert command[:2] == ["curl", "-s"]
        path = command[2].removeprefix(PUBLIC)
        body = json.loads(command[command.index("-d") + 1])
        answer: dict[str, Any] = service.client.post(path, json=body).raise_for_status().json()
        return answer


def send_orders(orders: list[dict[str, str]], service: Service, known: PreparedData) -> int:
    """Send the orders of the week with ids as events, and give the number that was stored."""
    events = [
        {
            "event_id": f"order-{number}",
            "user_id": order["customer"],
            "item_id": order["sku"],
            "time": f"{order['ordered_at'].replace(' ', 'T')}Z",
        }
        for number, order in enumerate(orders)
        if order["customer"].startswith("k") and known.item_ids.row(order["sku"]) is not None
    ]
    batches = [events[first : first + 100] for first in range(0, len(events), 100)]
    calls = [service.client.post("/v1/events", json={"events": batch}) for batch in batches]
    return sum(call.raise_for_status().json()["stored"] for call in calls)


def sources(answer: dict[str, Any]) -> set[str]:
    assert not answer["degraded"]
    return {item["source"] for item in answer["items"]}


def read_and_train(week: Week) -> None:
    """Monday and Tuesday."""
    said = week.next("data", "prepare")
    assert "read as features are name (text)" in said
    assert "category (category)" in said
    assert "dropped: " in said
    assert "auto: Picked: " in week.next("train")
    judged = week.next("evaluate")
    assert re.search(r"^verdict$", judged, re.MULTILINE)
    assert re.search(r"(Better than|Worse than|No clear difference from) EASE", judged)
    assert week.next("export").splitlines()[-1] == "var/bundles/first"


def go_live(week: Week, service: Service, orders: list[dict[str, str]]) -> int:
    """Wednesday; the number of events that were stored."""
    asked = {"user_id": "k000007", "k": 5}
    assert sources(service.client.post("/v1/recommend", json=asked).json()) == {"popular"}
    assert ": 0 are new" not in week.next("history", "load")
    assert " towers " in week.next("recommend", service=service)
    assert sources(week.send(service)) == {"towers"}
    assert week.send(service)["stored"] == 1
    return 1 + send_orders(orders, service, PreparedData.open(week.folder / "var" / "prepared"))


@pytest.mark.process
def test_the_week_of_the_page(tmp_path: Path) -> None:
    """From messy files to answers by user id; then a worse model is refused, and a warm start goes live."""
    orders = write_first_log(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {ORDERS, PRODUCTS}
    week = Week(tmp_path)
    read_and_train(week)
    before = PreparedData.open(tmp_path / "var" / "prepared")
    with serving(*week.serve(), folder=tmp_path) as service:
        stored = go_live(week, service, orders)
        assert "first" in week.next("versions")
        week.next("history", "dump")
        assert "events are new" in week.next("data", "append")
        grown = PreparedData.open(tmp_path / "var" / "prepared")
        assert len(grown.event_items) == len(before.event_items) + stored
        assert "The bundle was trained on events until" in week.next("train")
        week.next("evaluate")
        week.next("export")
        week.next("train")
        assert "never evaluated" in week.next("export")
        refused = week.next("activate", "short", status=3, service=service)
        assert "short is worse than first: ndcg@10 is " in refused
        assert service.client.get("/v1/version").json()["version"] == "first"
        accepted = week.next("activate", "week", service=service)
        assert "week is not worse than first: ndcg@10 is " in accepted
        assert service.client.get("/v1/version").json()["version"] == "week"
        week.next("versions")
    assert next(week.commands, None) is None
