"""Files that crash, hang or fill their reader are refused, and no process is left behind."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ltpll.errors import InputError
from ltpll.tables import guarded
from ltpll.tables.guarded import check_parquet
from ltpll.tables.read_tables import read_table
from support.refusals import refusal

TABLE = pa.table(
    {
        "a": pa.array([1, 2, None], type=pa.int32()),
        "text": ["x", "y", "z"],
        "struct": [{"p": 1, "q": "r"}] * 3,
    }
)


def parquet(path):
    pq.write_table(TABLE, path, row_group_size=2)
    return path


@pytest.fixture
def pipe(tmp_path):
    """A file that keeps its reader waiting."""
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_parquet_files_with_any_byte_changed_are_read_or_refused(tmp_path):
    path = tmp_path / "t.parquet"
    columns = {"candidates": [["a"], ["a", "b"], ["b"]], "x": [1.0, 2.0, 3.0]}
    pq.write_table(pa.table(columns), path)
    whole = path.read_bytes()
    refused = 0
    for i in range(0, len(whole), 3):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ (1 << i % 8)]) + whole[i + 1 :])
        try:
            read_table(path)
        except InputError:
            refused += 1
    assert 30 < refused < len(whole) // 3 - 30


def test_after_a_crash_the_next_file_is_read_by_a_new_child(tmp_path):
    path = parquet(tmp_path / "t.parquet")
    check_parquet(path)
    first = guarded._child
    first.kill()
    first.wait()
    check_parquet(path)
    assert guarded._child.pid != first.pid


def test_a_child_that_dies_while_it_reads_refuses_the_file_alone(tmp_path, pipe):
    child = guarded._running_child()
    subprocess.Popen(
        [sys.executable, "-c", f"import os, time; time.sleep(0.1); os.kill({child.pid}, 11)"]
    )
    assert "crashes its reader" in refusal(lambda: check_parquet(pipe))
    check_parquet(parquet(tmp_path / "t.parquet"))


def test_a_file_that_takes_too_long_is_refused(tmp_path, pipe, monkeypatch):
    monkeypatch.setattr(guarded, "SECONDS", 0.1)
    assert "takes more than 0 s" in refusal(lambda: check_parquet(pipe))


def test_an_interrupt_ends_the_child_and_the_next_file_is_read(tmp_path, pipe):
    child = guarded._running_child()
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            check_parquet(pipe)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert child.returncode is not None
    check_parquet(parquet(tmp_path / "t.parquet"))


@pytest.mark.parametrize("end", ["pass", "os.kill(os.getpid(), 9)"], ids=["exit", "killed"])
def test_the_child_ends_with_its_parent(tmp_path, end):
    code = f"""
import os
import shutil
from pathlib import Path
from ltpll.tables import guarded
guarded.check_parquet(Path({str(parquet(tmp_path / "t.parquet"))!r}))
print(guarded._child.pid, flush=True)
{end}
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert found.stderr == ""
    until = time.monotonic() + 5
    while _runs(int(found.stdout)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _runs(int(found.stdout))


def _runs(process):
    """Whether a process runs; one that has ended may wait for its new parent to notice."""
    try:
        os.kill(process, 0)
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_child_that_cannot_be_started_is_named_in_a_sentence(tmp_path, monkeypatch):
    guarded.end_child()
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    path = parquet(tmp_path / "t.parquet")
    assert "ended with status 1 when it was started" in refusal(lambda: check_parquet(path))
