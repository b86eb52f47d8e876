"""`turret recommend`: the answer of a running service beside the history."""

import json
import os
import sys
import time
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from turret.client import AnswerError, Client, ClientError
from turret.client.answers import RecommendAnswer
from turret.data.errors import ConfigurationError, shown
from turret.data.reading.markup import plain_text
from turret.data.text import text_table

_SHOWN_HISTORY = 10
_WIDTH = 110


def service_client(url: str) -> Client:
    """A client with the key of TURRET_API_KEY, if there is one."""
    return Client(url, os.environ.get("TURRET_API_KEY") or None)


def wait_until_ready(client: Client, seconds: float) -> None:
    """Wait until the service is ready. Raises ClientError after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        try:
            client.ready()
            return
        except ClientError:
            if time.monotonic() >= end:
                raise
        time.sleep(0.1)


def context_of(options: Sequence[str]) -> dict[str, str]:
    """Return the context of a request by options NAME=VALUE. Raises ConfigurationError for another form."""
    values = dict[str, str]()
    for option in options:
        name, is_given, values[name] = option.partition("=")
        if not name or not is_given:
            raise ConfigurationError(f"--context {shown(option)}: give NAME=VALUE, such as device=mobile")
    return values


def prepared_history(folder: Path, user: str | None) -> tuple[list[Any], list[str], list[dict[str, Any]]]:
    """The history of a user of prepared data, or anybody: as a request has it, its ids, and their fields."""
    from turret.data.prepared import look_up

    items, descriptions, kinds = look_up(folder, user, limit=1000)
    entries: list[Any] = list(items)
    if any(kinds):
        entries = [{"item": item, "kind": kind} for item, kind in zip(items, kinds, strict=True)]
    return entries, [*map(str, items)], descriptions


def print_answer(answer: RecommendAnswer, text: str, as_json: bool) -> None:
    """Print an answer as JSON, or as this text."""
    shown = answer.model_dump(mode="json", exclude_unset=True)
    print(json.dumps(shown, indent=2, ensure_ascii=False) if as_json else text)


def recommendations(answer: RecommendAnswer, history: Sequence[str], title: str | None = None) -> str:
    """A table of an answer beside the newest items of the history (formatted, oldest first)."""
    headings = f"history, newest first ({len(history)} items)", "what next?", "score", "source"
    newest = list(reversed(history))[:_SHOWN_HISTORY]
    rows = []
    for used, item in zip_longest(newest, answer.items):
        of_item = ("", "", "")
        if item is not None:
            of_item = item_text(item.id, item.fields, title), f"{item.score:.2f}", item.source
        rows.append((used or "", *of_item))
    table = text_table(headings, rows, f"version {answer.version}", width=_WIDTH, right=("score",))
    unknown = ", ".join(map(str, answer.unknown_items))
    return f"{table}\nnot in this version's catalog: {unknown}" if unknown else table


def found_items(answer: RecommendAnswer, query: str, title: str | None = None) -> str:
    """A table of the items that answer a query."""
    rows = [
        (item_text(item.id, item.fields, title), f"{item.score:.2f}", item.source) for item in answer.items
    ]
    caption = f"{query!r}, version {answer.version}"
    return text_table(("item", "score", "source"), rows, caption, width=_WIDTH, right=("score",))


def item_text(item: int | str, fields: dict[str, Any], title: str | None = None) -> str:
    """Format an item: its field `title` or its first text, its first list such as genres, and its id."""
    texts = [
        text for text in (fields.get(title or "title"), *fields.values()) if isinstance(text, str) and text
    ]
    lists = [", ".join(map(str, values)) for values in fields.values() if isinstance(values, list) and values]
    name = texts[0] if texts else str(item)
    is_id = plain_text(name) == plain_text(str(item))  # an id keeps the HTML that `prepare` decodes in texts
    return f"{name}{f' ({lists[0]})' if lists else ''}" + ("" if is_id else f" [{item}]")


def title_field(client: Client) -> str | None:
    """The field of the live version that names items; None where the service does not say."""
    try:
        return client.fields().title
    except ClientError:
        return None


def stored_history(client: Client, user: str, title: str | None = None) -> list[str]:
    """A user's stored history, oldest first: the newest items formatted with their fields, the others as ids.

    It is empty, with a notice, if the key may not read it.
    """
    try:
        events = client.user(user).events
    except AnswerError as error:
        if error.status != 403:
            raise
        print("the stored history isn't shown: it needs a key of the scope write", file=sys.stderr)
        return []
    used = [str(event.item_id) for event in events]
    newest = used[-_SHOWN_HISTORY:]
    if not newest:
        return []
    known = client.find_items(ids=[*dict.fromkeys(newest)]).items
    fields = {str(item.id): item.fields for item in known}
    return used[: -len(newest)] + [item_text(item, fields.get(item, {}), title) for item in newest]
