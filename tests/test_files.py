"""Files: links are followed, and a file system without locks is named."""

import errno
import os
from pathlib import Path

import pytest

from ltpll.files import acquire_lock, write_atomically
from ltpll.runs.run import Run
from support.refusals import refusal


def test_a_link_stays_and_its_target_is_written_beside_which_nothing_is_left(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "target").write_text("old")
    for name, target in (("link", "there/target"), ("dangling", "there/new"), ("chain", "link")):
        (tmp_path / name).symlink_to(target)
        write_atomically(tmp_path / name, name.encode())
        assert (tmp_path / name).readlink() == Path(target)
        assert (tmp_path / name).read_text() == name
    assert {path.name for path in tmp_path.rglob("*")} == {
        "chain",
        "dangling",
        "link",
        "there",
        "new",
        "target",
    }


def test_a_link_to_a_missing_folder_is_one_sentence_and_stays(tmp_path):
    (tmp_path / "link").symlink_to("nowhere/file")
    assert "link cannot be written (No such file" in refusal(
        lambda: write_atomically(tmp_path / "link", b"")
    )
    assert list(tmp_path.iterdir()) == [tmp_path / "link"]


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named_with_what_to_do(tmp_path, monkeypatch, code):
    fcntl = pytest.importorskip("fcntl")

    def no_locks(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    run = Run(tmp_path / "runs", {"seed": 0})
    for lock in (lambda: acquire_lock(tmp_path / "lock"), run.locked().__enter__):
        message = refusal(lock)
        assert "does not support file locks" in message
        assert message.endswith("choose a folder on another one, such as a local disk.")
