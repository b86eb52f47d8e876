"""The sources of a log with their columns and kinds, before their rows are read."""

from collections.abc import Sequence
from dataclasses import replace

from turret.data.answers.log import read_answers
from turret.data.errors import ColumnError
from turret.data.events.events import validate
from turret.data.events.funnel import propose_kinds, shown_table
from turret.data.events.labels import refuse_absent_kinds
from turret.data.kinds import KindTable
from turret.data.manifest import Columns
from turret.data.reading.columns import ANSWER, KINDS, choose_columns
from turret.data.reading.schema import PrepareConfig
from turret.data.reading.source_settings import SourceSettings
from turret.data.reading.tables import LogSource, Source, Table
from turret.data.rows import Engine

_ONLY = SourceSettings()
Parts = Sequence[tuple[int | None, Table]]
_OF_SEVERAL = {"weight": "weight", "quantity": "quantity", "session": "session_id"}
"""The columns of the events of several sources, under the names of `turret.history.dumping`."""


def shared_columns(parts: Parts) -> list[str]:
    """Return the columns that all parts have, in the order of the first part."""
    first, *others = [table.columns for _, table in parts]
    return [name for name in first if all(name in columns for columns in others)]


def choose_sources(
    config: PrepareConfig, source: Source, is_continued: bool, engine: Engine
) -> tuple[list[LogSource], KindTable, str]:
    """Return the sources of the log with the columns of each, the table of kinds, and sentences about it.

    The sentences are about a proposed table. The columns of kinds and answers have their usual names, too;
    without a table, kinds count where their column is named. Raises ColumnError as `choose_columns` and
    `_proposed` do, as `refuse_absent_kinds` does unless the log is continued, as `read_answers` does, and for
    an answer log where no source names answers.
    """
    answers = None if config.answers is None else read_answers(config.answers)
    shared = {"format": config.format, "columns": source.columns or config.columns}
    only = _ONLY.model_copy(update=shared)
    tables: list[tuple[SourceSettings, Parts]]
    tables = [(settings, [(None, table)]) for settings, table in source.sources]
    logs = list[LogSource]()
    for settings, parts in tables or [(only, source.parts)]:
        existing, (_, first) = shared_columns(parts), parts[0]
        hint = "; if its first line is a row and no header, give --no-header"
        may_lack_header = settings.format.has_header and all(table.is_text for _, table in parts)
        columns = choose_columns(settings.columns, existing, str(first.path), hint if may_lack_header else "")
        if settings.kind is None:
            usual = columns.kind or next((name for name in KINDS if name in existing), None)
            columns = columns.model_copy(update={"kind": usual})
        if columns.answer is None and ANSWER in existing and config.queries is None:
            columns = columns.model_copy(update={"answer": ANSWER})
        logs.append(LogSource(tuple(parts), columns, settings, None if columns.answer is None else answers))
    if answers is not None and all(log.answers is None for log in logs):
        raise ColumnError(
            f"--answers {config.answers}: {logs[0].path} has no column {ANSWER} that names the answer of "
            "each event; `turret history dump` writes it where clients send it, else leave --answers out"
        )
    kinds, note = config.kinds, ""
    may_have = logs[0].columns.kind is not None or config.kinds_auto
    if kinds and not is_continued:
        refuse_absent_kinds(logs, kinds, config.filters.default_kind, engine)
    elif may_have and not is_continued and config.queries is None and not config.sources:
        kinds, note = _proposed(logs[0], config, engine)
    if kinds:
        return logs, kinds, note
    named = [
        replace(log, columns=log.columns.model_copy(update={"kind": log.settings.columns.kind}))
        for log in logs
    ]
    return named, kinds, note


def _proposed(source: LogSource, config: PrepareConfig, engine: Engine) -> tuple[KindTable, str]:
    """Propose a table of kinds for a log without such a table, and return it with sentences about it.

    The table is empty unless `kinds_auto` is set. Raises ColumnError if it is set and there is no column of
    kinds.
    """
    columns = source.columns
    if columns.kind is None or source.parts[0][1].frame.collect_schema()[columns.kind].is_nested():
        if config.kinds_auto:
            raise ColumnError("--kinds auto needs a column of kinds; name it with --kind-column")
        return {}, ""
    without_sessions = replace(source, columns=columns.model_copy(update={"session": None}))
    table, note = propose_kinds(validate([without_sessions], {}, config.filters, engine=engine))
    if not table:
        return {}, note if config.kinds_auto else ""
    shown = shown_table(columns.kind or "", table)
    if config.kinds_auto:
        return table, f"{note}. In use:\n\n{shown}"
    return {}, f"{note}. So far all events are alike; --kinds auto takes this table:\n\n{shown}"


def columns_of(logs: Sequence[LogSource], has_kinds: bool) -> Columns:
    """Return the columns by role of several sources, under the names that a dump has."""
    roles = {role for log in logs for role, name in log.columns if name is not None}
    optional = {role: name for role, name in _OF_SEVERAL.items() if role in roles}
    if has_kinds:
        optional["kind"] = "kind"
    return Columns(user="user_id", item="item_id", time="timestamp", **optional)
