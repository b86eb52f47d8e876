"""Spark gives each row the verdict of Polars."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# They need a session of Spark.
pytestmark = pytest.mark.nightly

BothWays = Callable[..., tuple[dict[str, Any], dict[str, Any]]]

HARD = """user_id,item_id,time,weight,label
"a, b","x""y",2024-05-01,1.5,1
"",z,2024-05-02,1,1
q,"",2024-05-03,1,1
 r , s ,2024-05-04, 2 ,0
,,,,
null,x,2024-05-05,1,1
k,x,2024-13-05,1,1

k,x,2024-05-06 1:2:3.4567+02:00,1e1,1
k,y,2024-05-06T01:02:03Z,1d,1
k,z,2024-05-06 12:30:60,-1,1
k,x,2024-05-07,inf,1
k,x,2024-05-08,.1,2
k,v,2024-05-08,.1,1.0
k,w,2024-05-08,1e-3,-0
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_hard_lines_are_read_alike(tmp_path: Path, both_ways: BothWays, newline: str) -> None:
    (tmp_path / "hard.csv").write_bytes(HARD.replace("\n", newline).encode())
    columns = {"weight": "weight", "label": "label"}
    by_polars, by_spark = both_ways(
        source=tmp_path / "hard.csv", columns=columns, filters={"min_weight": 0.1}, on_bad="drop"
    )
    assert len(by_polars["bad_rows"]) >= 6
    assert by_spark == by_polars
