"""docs/runbook.md explains every alert and no other, and its commands exist."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.support.command_line import check_call

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "runbook.md").read_text("utf-8")
ALERTS = PAGE.split("\n## Alerts\n")[1]
SERVICES = yaml.safe_load((ROOT / "deploy" / "production.yml").read_text("utf-8"))["services"]
COMMANDS = re.findall(
    r"(?<=`)docker compose [^`]+|^docker compose [^#\n]+", PAGE.replace("\n  ", " "), re.MULTILINE
)
PREFIX = {"admin": [], "trainer": [], "history": ["history"], "retrain": ["retrain"]}


def test_every_alert_has_an_entry_with_its_meaning_a_place_to_look_and_an_action() -> None:
    (group,) = yaml.safe_load((ROOT / "deploy" / "observing" / "alerts.yml").read_text("utf-8"))["groups"]
    entries = dict(re.findall(r"^### (\w+)\n(.*?)(?=^###|\Z)", ALERTS, re.MULTILINE | re.DOTALL))
    assert list(entries) == [rule["alert"] for rule in group["rules"]]
    for entry in entries.values():
        assert re.findall(r"^- \*\*(\w+):\*\*", entry, re.MULTILINE) == ["Meaning", "Look", "Do"]


@pytest.mark.parametrize("line", sorted(set(COMMANDS)))
def test_a_command_of_the_page_exists(line: str) -> None:
    words = shlex.split(line)[2:]
    while words[0].startswith("--"):
        words = words[2:]
    match words:
        case ["run", "--rm", "--entrypoint", "ls", name, *_]:
            assert name in SERVICES
        case ["run", "--rm", *rest]:
            name, *call = [word for word in rest if word != "-T"]
            check_call([*PREFIX[name], *call])
        case ["up" | "logs" | "restart" | "exec", *rest]:
            named = {word for word in rest if word in ("proxy", "service", "redis")}
            assert named <= SERVICES.keys()
        case _:
            assert words == ["ps"]


@pytest.mark.parametrize(
    "script", sorted(set(re.findall(r"deploy/([a-z]+)\b(?![./])", PAGE)) - {"observing", "secrets"})
)
def test_a_script_of_the_page_exists(script: str) -> None:
    assert (ROOT / "deploy" / script).stat().st_mode & 0o111
