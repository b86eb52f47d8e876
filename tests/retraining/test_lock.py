from pathlib import Path

import pytest

from turret.retraining.lock import LockedError, retrain_lock


def test_a_second_retraining_in_one_folder_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    work = tmp_path / "deep" / "work"
    with retrain_lock(work):
        refused = pytest.raises(LockedError, match="another `turret retrain` is running in")
        with refused as error, retrain_lock(work):
            pass
        assert error.value.exit_status == 1
    with retrain_lock(work):
        pass


def test_a_folder_that_can_not_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = pytest.raises(LockedError, match=r"--work .*file/work: the folder can't be made")
    with refused, retrain_lock(tmp_path / "file" / "work"):
        pass


def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> bool:
        raise OSError("no locks")

    monkeypatch.setattr("turret.data.files.locks.try_lock", refuse)
    with pytest.raises(LockedError, match="its file system has no locks"), retrain_lock(tmp_path):
        pass
