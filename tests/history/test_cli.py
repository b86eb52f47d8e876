import subprocess
import sys
from pathlib import Path

from tests.history.conftest import Prepare
from tests.support.command_line import environment

WITHOUT_POLARS = """
import sys
sys.modules["polars"] = sys.modules["torch"] = None
"""
LOAD = """
from turret.cli import main
sys.argv = ["turret", "history", "load", "--data", "log", "--store", "sqlite:///h.sqlite"]
main()
"""


def test_prepared_data_is_loaded_where_only_the_service_is_installed(
    tmp_path: Path, prepared: Prepare
) -> None:
    prepared("user_id,item_id,timestamp\na,x,1700000001\n")
    code = WITHOUT_POLARS + LOAD
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "1 events of 1 users: 1 are new in sqlite:///h.sqlite, 0 were there already"
    )
