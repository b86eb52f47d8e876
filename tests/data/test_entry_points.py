from collections.abc import Sized
from fractions import Fraction
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.plugin import install
from turret.data.entry_points import load, registry
from turret.data.errors import ConfigurationError

NAMED = "from types import SimpleNamespace\nA = SimpleNamespace(name='a')\nNAMELESS = SimpleNamespace()\n"


def test_an_object_or_a_class_is_loaded() -> None:
    value = EntryPoint("v", "math:pi", "group")
    assert load(value, float, ConfigurationError) == pytest.approx(3.14, abs=0.01)
    assert load(EntryPoint("c", "fractions:Fraction", "group"), object, ConfigurationError, True) is Fraction


@pytest.mark.parametrize(
    ("value", "base", "is_class", "problem"),
    [
        ("no_such_module:A", float, False, "can't be loaded: ModuleNotFoundError"),
        ("math:no_such_name", float, False, "can't be loaded: AttributeError"),
        ("math:pi", int, False, r"is 3\.14.*, not of the type int"),
        ("math:pi", float, True, r"is 3\.14.*, not a subclass of float"),
        ("fractions:Fraction", float, True, "not a subclass of float"),
    ],
)
def test_an_object_that_does_not_fit_is_named(value: str, base: type, is_class: bool, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"entry point 'e' \({value}\) of group .*{problem}"):
        load(EntryPoint("e", value, "group"), base, ConfigurationError, is_class)


def test_a_class_that_lacks_a_method_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    source = "from collections.abc import Sized\nclass Unsized(Sized):\n    pass\n"
    install(tmp_path, "half_of_a_class", source, {})
    with pytest.raises(
        ConfigurationError, match=r"\(half_of_a_class:Unsized\) of group doesn't define __len__"
    ):
        load(EntryPoint("e", "half_of_a_class:Unsized", "group"), Sized, ConfigurationError, True)


def test_packages_add_entries_with_names_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    install(tmp_path, "entries_of_another", NAMED, {"a.group": "a = entries_of_another:A"})
    ours = SimpleNamespace(name="ours")
    assert list(registry([ours], "a.group", SimpleNamespace, ConfigurationError)) == ["ours", "a"]
    with pytest.raises(
        ConfigurationError, match=r"two entries of a\.group are named 'a'.*entries_of_another"
    ):
        registry([SimpleNamespace(name="a")], "a.group", SimpleNamespace, ConfigurationError)


def test_a_reason_of_ours_is_given_as_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    raising = "from turret.data.errors import DataError\nraise DataError('kind is no literal')\n"
    install(tmp_path, "raising_entries", raising, {"c.group": "a = raising_entries:A"})
    with pytest.raises(ConfigurationError, match="can't be loaded: kind is no literal; update"):
        registry([], "c.group", SimpleNamespace, ConfigurationError)


def test_a_package_that_exits_on_import_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command would otherwise end without a word."""
    monkeypatch.syspath_prepend(tmp_path)
    install(tmp_path, "exits_on_import", "raise SystemExit(3)\n", {})
    with pytest.raises(ConfigurationError, match=r"\(exits_on_import:A\) .*can't be loaded: SystemExit"):
        load(EntryPoint("e", "exits_on_import:A", "group"), float, ConfigurationError)


def test_an_entry_without_a_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    install(tmp_path, "nameless_entries", NAMED, {"a.group": "a = nameless_entries:NAMELESS"})
    with pytest.raises(ConfigurationError, match="package nameless_entries can't be loaded: AttributeError"):
        registry([], "a.group", SimpleNamespace, ConfigurationError)
