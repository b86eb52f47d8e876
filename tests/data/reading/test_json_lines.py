from pathlib import Path

import pytest

from turret.data.errors import SourceError
from turret.data.reading.json_lines import scan_json_lines
from turret.data.reading.schema import FormatSettings
from turret.data.reading.tables import ROW, Table


def _scan(tmp_path: Path, text: bytes) -> Table:
    path, work = tmp_path / "log.jsonl", tmp_path / "work"
    path.write_bytes(text)
    work.mkdir()
    return scan_json_lines(path, FormatSettings(), work)


def test_files_without_broken_lines_are_read_in_place(tmp_path: Path) -> None:
    table = _scan(tmp_path, b'{"a": 1}\n{"a": 2}\n')
    assert table.frame.collect().rows() == [(1, 1), (2, 2)]
    assert table.malformed.count == 0
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize("broken", [b'{"a": ', b'{"a": 1} x', b"[1]", b"5", b'{"a": NaN}', b'{"a": "\xe9"}'])
def test_a_broken_line_is_counted_with_its_number_and_the_others_are_read(
    tmp_path: Path, broken: bytes
) -> None:
    table = _scan(tmp_path, b'{"a": 1}\n\n' + broken + b'\n{"a": 3}\n')
    assert table.frame.select(ROW, "a").collect().rows() == [(1, 1), (4, 3)]
    assert table.columns() == ["a"]
    assert table.malformed.count == 1
    assert table.malformed.examples[0]["row"] == 3
    assert table.path == tmp_path / "log.jsonl"


def test_a_column_of_mixed_types_becomes_text_and_stops_no_other(tmp_path: Path) -> None:
    lines = [
        b'{"a": 1, "odd": 7, "n": 1}',
        b'{"a": 2, "odd": ["x", {"y": 1.5}], "n": 1.5}',
        b"{broken",
        b'{"a": 3, "odd": null}',
        '{"a": 4, "odd": "é"}'.encode(),
    ]
    table = _scan(tmp_path, b"\n".join(lines) + b"\n")
    assert table.frame.select(ROW, "a", "odd", "n").collect().rows() == [
        (1, 1, "7", 1.0),
        (2, 2, '["x", {"y": 1.5}]', 1.5),
        (4, 3, None, None),
        (5, 4, "é", None),
    ]
    assert table.malformed.count == 1


def test_a_line_that_is_json_but_no_object_says_so(tmp_path: Path) -> None:
    table = _scan(tmp_path, b'{"a": 1}\n[1]\n' + b"{\n" * 5)
    assert table.malformed.count == 6
    assert [example["row"] for example in table.malformed.examples] == [2, 3, 4]
    problems = [example["problem"] for example in table.malformed.examples]
    assert problems[:2] == [
        "not a JSON object",
        "Expecting property name enclosed in double quotes at character 2",
    ]


def test_a_file_without_any_object_is_no_json_lines(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"log\.jsonl holds no JSON object"):
        _scan(tmp_path, b"user,item\n1,2\n")
