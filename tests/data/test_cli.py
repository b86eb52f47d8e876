"""Options of `turret data`: each one reaches the settings that it is named after."""

import shlex
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner, Result

from tests.support.command_line import commands
from turret.data.cli import app
from turret.data.reading.schema import ColumnSettings, FilterSettings, FormatSettings, PrepareConfig
from turret.data.synthetic.synthesis import SyntheticConfig

CONTROLS = {"source", "target", "config", "overwrite", "engine", "settings"}  # tested by themselves

# Option -> arguments that set it (with the options that it requires), the setting, the value.
PREPARE: dict[str, tuple[str, str, Any]] = {
    "on_bad": ("--on-bad drop", "on_bad", "drop"),
    "items": ("--items i.csv", "items", Path("i.csv")),
    "users": ("--users u.csv", "users", Path("u.csv")),
    "format": ("--format jsonl", "format.kind", "jsonl"),
    "delimiter": ("--delimiter ';'", "format.delimiter", ";"),
    "encoding": ("--encoding latin-1", "format.encoding", "latin-1"),
    "quote": ("--quote ''", "format.quote", ""),
    "no_header": ("--no-header", "format.has_header", False),
    "decimal": ("--decimal ,", "format.decimal", ","),
    "null": ("--null x --null y", "format.nulls", ("x", "y")),
    "list_separator": ("--list-separator ,", "format.list_separator", ","),
    "user": ("--user a", "columns.user", "a"),
    "item": ("--item a", "columns.item", "a"),
    "time": ("--time a", "columns.time", "a"),
    "in_file_order": ("--in-file-order", "columns.in_file_order", True),
    "weight": ("--weight a", "columns.weight", "a"),
    "quantity": ("--quantity a", "columns.quantity", "a"),
    "label": ("--label a", "columns.label", "a"),
    "negatives": ("--negatives a", "columns.negatives", "a"),
    "kind_column": ("--kind-column a", "columns.kind", "a"),
    "item_id": ("--item-id a", "columns.item_id", "a"),
    "user_id": ("--user-id a", "columns.user_id", "a"),
    "time_unit": ("--time-unit milliseconds", "columns.time_unit", "milliseconds"),
    "time_format": ("--time-format %Y", "columns.time_format", "%Y"),
    "kind": ("--kind buy --kind rent", "filters.kinds", ("buy", "rent")),
    "min_weight": ("--min-weight 2.5", "filters.min_weight", 2.5),
    "duplicates": ("--duplicates last", "filters.duplicates", "last"),
    "min_user_events": ("--min-user-events 3", "filters.min_user_events", 3),
    "min_item_events": ("--min-item-events 4", "filters.min_item_events", 4),
    "split": ("--split time", "split.kind", "time"),
    "test_fraction": ("--test-fraction .3", "split.test_fraction", 0.3),
    "validation_fraction": ("--validation-fraction .3", "split.validation_fraction", 0.3),
    "validation_from": ("--validation-from 5 --test-from 6", "split.validation_from", "5"),
    "test_from": ("--validation-from 5 --test-from 6", "split.test_from", "6"),
    "train": ("--train a.csv --test b.csv", "split.train", Path("a.csv")),
    "test": ("--train a.csv --test b.csv", "split.test", Path("b.csv")),
    "validation": ("--train a.csv --test b.csv --validation c.csv", "split.validation", Path("c.csv")),
    "item_text": ("--item-text a --item-text b", "item_features.text", ("a", "b")),
    "item_category": ("--item-category a", "item_features.category", ("a",)),
    "item_multi": ("--item-multi a", "item_features.multi", ("a",)),
    "item_number": ("--item-number a", "item_features.number", ("a",)),
    "user_category": ("--user-category a", "user_features.category", ("a",)),
    "user_multi": ("--user-multi a", "user_features.multi", ("a",)),
    "user_number": ("--user-number a", "user_features.number", ("a",)),
    "field": ("--field a --field b", "fields", ("a", "b")),
}


def invoke(words: str) -> Result:
    done = CliRunner().invoke(app, shlex.split(words))
    assert done.exit_code == 0, done.exception or done.stderr
    return done


def value_of(config: object, setting: str) -> Any:
    for name in setting.split("."):
        config = getattr(config, name, None)
    return config


Prepared = list[tuple[PrepareConfig, Path, bool]]


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Prepared:
    """The arguments of `prepare`, which is replaced by a spy."""
    calls: Prepared = []

    def spy(
        config: PrepareConfig, target: Path, overwrite: bool, engine: str | None = None
    ) -> SimpleNamespace:
        calls.append((config, target, overwrite))
        return SimpleNamespace(warnings=("a warning",))

    monkeypatch.setattr("turret.data.preparing.prepare.prepare", spy)
    monkeypatch.setattr("turret.data.describe.describe", lambda folder: f"what is in {folder}")
    return calls


@pytest.mark.parametrize("option", PREPARE)
def test_an_option_of_prepare_changes_its_setting(option: str, prepared: Prepared) -> None:
    """Without the option, the setting has its default, which is another value."""
    words, setting, value = PREPARE[option]
    invoke("prepare events.csv")
    assert prepared[0][0] == PrepareConfig(source=Path("events.csv"))
    invoke(f"prepare {'' if '--train' in words else 'events.csv'} {words}")
    (plain, _, _), (given, _, _) = prepared
    assert value_of(given, setting) == value
    assert value_of(plain, setting) != value


def test_no_option_of_prepare_is_read_by_nobody() -> None:
    """The table above lists all options."""
    assert {option.name for option in commands()["data prepare"].params} == CONTROLS | set(PREPARE)


def test_every_setting_of_prepare_has_an_option_or_is_known_to_have_none() -> None:
    """A mapping fits no option; it is given with --set or in the file."""
    sections: dict[str, type[BaseModel]] = {
        "format": FormatSettings,
        "columns": ColumnSettings,
        "filters": FilterSettings,
    }
    settings = {f"{section}.{name}" for section, model in sections.items() for name in model.model_fields}
    assert settings - {setting for _, setting, _ in PREPARE.values()} == {"filters.kind_weights"}


@pytest.mark.parametrize(
    ("words", "kind"),
    [("--test-fraction .2", "time"), ("--train a --test b", "files"), ("--on-bad drop", "last")],
)
def test_the_options_given_tell_the_kind_of_split(words: str, kind: str, prepared: Prepared) -> None:
    invoke(f"prepare {'' if '--train' in words else 'events.csv'} {words}")
    assert prepared[0][0].split.kind == kind


def test_options_win_over_the_file_and_the_rest_is_of_the_file(prepared: Prepared, tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text('source = "of the file.csv"\n[columns]\nuser = "buyer"\nitem = "sku"\n')
    invoke(f"prepare --config {file} --item article --set 'filters.kind_weights={{buy = 2.0}}'")
    config = prepared[0][0]
    assert (config.source, config.columns.user, config.columns.item) == (
        Path("of the file.csv"),
        "buyer",
        "article",
    )
    assert config.filters.kind_weights == {"buy": 2.0}


def test_prepare_is_told_where_to_write_and_tells_what_it_wrote(prepared: Prepared) -> None:
    done = invoke("prepare events.csv --to there --overwrite")
    invoke("prepare events.csv")
    assert [(target, overwrite) for _, target, overwrite in prepared] == [
        (Path("there"), True),
        (Path("var/prepared"), False),
    ]
    assert done.stdout == "a warning\n\nwhat is in there\n"


def test_the_engine_of_preparation_is_polars_unless_one_is_named(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines: list[str | None] = []

    def spy(config: PrepareConfig, target: Path, overwrite: bool, engine: str | None) -> SimpleNamespace:
        engines.append(engine)
        return SimpleNamespace(warnings=())

    monkeypatch.setattr("turret.data.preparing.prepare.prepare", spy)
    invoke("prepare events.csv")
    invoke("prepare events.csv --engine spark://host:7077")
    assert engines == [None, "spark://host:7077"]


def test_every_option_of_synth_reaches_the_shop(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[SyntheticConfig, Path, bool]] = []
    day = datetime(2024, 5, 1, tzinfo=UTC)
    report = SimpleNamespace(events=12_000, users=700, items=800, first=day, last=day, folder="there")

    def spy(config: SyntheticConfig, target: Path, overwrite: bool) -> SimpleNamespace:
        calls.append((config, target, overwrite))
        return report

    monkeypatch.setattr("turret.data.synthetic.synthesis.synthesise", spy)
    words = "--users 700 --items 800 --events-per-user 17.5 --seed 3 --set follow=0.25 --overwrite"
    done = invoke(f"synth there {words}")
    invoke("synth")
    expected = SyntheticConfig(users=700, items=800, events_per_user=17.5, seed=3, follow=0.25)
    assert calls == [(expected, Path("there"), True), (SyntheticConfig(), Path("var/shop"), False)]
    assert done.stdout == ("12,000 events of 700 users and 800 items, 2024-05-01 to 2024-05-01, in there\n")
    assert {option.opts[0] for option in commands()["data synth"].params} - {"target"} == {
        word for word in words.split() if word.startswith("--")
    }


def test_the_defaults_that_help_names_are_those_of_the_settings() -> None:
    """The help of options without a default names the default of the setting in brackets."""
    shown = {option.name: option.help for option in commands()["data synth"].params}
    for name in ("users", "items", "events_per_user", "seed"):
        default = SyntheticConfig.model_fields[name].default
        assert f"({default:,})" in shown[name]


def test_fetch_names_the_folder_the_checksum_and_the_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, Path, str | None]] = []

    def spy(name: str, target: Path, base_url: str | None) -> Path:
        calls.append((name, target, base_url))
        return target / name

    monkeypatch.setattr("turret.data.datasets.fetch.fetch", spy)
    done = invoke("fetch movielens-1m --to there --base-url http://mirror")
    assert calls == [("movielens-1m", Path("there"), "http://mirror")]
    assert "MovieLens 1M is in there/movielens-1m" in done.stdout
    assert "md5" in done.stdout
    assert "no commercial use" in done.stdout
