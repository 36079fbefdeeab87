"""Facts about calls in several processes."""

import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import forkserver
from pathlib import Path

import pytest

from ltpll.errors import InputWarning
from ltpll.processes import in_processes
from support.processes import environment_of_tests, hearing_signals


def power(base, exponent):
    return base**exponent


def note_and_wait(path):
    path.write_text(str(os.getpid()))
    time.sleep(600)


def test_results_of_all_calls_come_back():
    assert sorted(in_processes(power, [(2, k) for k in range(5)], 2)) == [1, 2, 4, 8, 16]


def test_an_interrupt_ends_all_calls_and_leaves_neither_process_nor_thread(tmp_path):
    path = tmp_path / "pid"

    def interrupt_once_started():
        if path.exists() and path.read_text():
            raise KeyboardInterrupt

    threads = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        in_processes(note_and_wait, [(path,), (path,), (path,)], 1, interrupt_once_started)
    with pytest.raises(ProcessLookupError):
        os.kill(int(path.read_text()), 0)
    # The pool's own thread left running prints a traceback at exit once in a while.
    assert set(threading.enumerate()) == threads


def test_what_a_call_raises_reaches_the_caller():
    with pytest.raises(ZeroDivisionError):
        in_processes(power, [(0, -1), (2, 1)], 2)


@pytest.mark.parametrize(
    ("limited", "error"),
    [("thread", RuntimeError("can't start new thread")), ("server", BlockingIOError(11, "no"))],
)
def test_where_no_process_can_be_started_this_one_does_the_work_and_says_so(
    monkeypatch, limited, error
):
    def refuse(*_):
        raise error

    if limited == "thread":
        monkeypatch.setattr(threading.Thread, "start", refuse)
    else:
        monkeypatch.setattr(forkserver, "ensure_running", refuse)
    semaphores, waited = set(Path("/dev/shm").glob("sem.*")), []
    with pytest.warns(InputWarning, match="No further processes can be started here"):
        assert in_processes(os.getpid, [(), ()], 2, lambda: waited.append(1)) == [os.getpid()] * 2
    assert len(waited) == 2
    assert set(Path("/dev/shm").glob("sem.*")) <= semaphores


def test_only_the_parent_handles_what_a_closed_terminal_sends_to_all():
    before = signal.getsignal(signal.SIGHUP)
    assert in_processes(signal.getsignal, [(signal.SIGHUP,)], 1) == [signal.SIG_IGN]
    assert signal.getsignal(signal.SIGHUP) is before


def test_processes_end_with_a_parent_that_was_killed(tmp_path):
    path = tmp_path / "pid"
    code = (
        "import pathlib, test_processes\n"
        "from ltpll import processes\n"
        "processes.PRELOADED.clear()  # which takes seconds, and the call needs none of it\n"
        "processes.in_processes(\n"
        f"    test_processes.note_and_wait, [(pathlib.Path({str(path)!r}),)], 1)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], env=environment_of_tests())
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    child = int(path.read_text())
    while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert time.monotonic() < deadline


def test_tests_and_their_children_hear_interrupts_where_these_are_ignored():
    before = signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # as in a job in the background of a shell
    try:
        with hearing_signals():
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            code = "import signal; signal.raise_signal(signal.SIGINT)"
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
            assert b"KeyboardInterrupt" in done.stderr
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_these_tests_ignore_no_interrupt():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
