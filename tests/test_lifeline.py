"""Processes whose main threads hang, as those do that wait for a GPU."""

import queue
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from ltpll import lifeline
from ltpll.lifeline import LEAVES, Lifeline
from refusals import refusal

ONE = """
import sys, time
from pathlib import Path
from ltpll import lifeline

folder, rank, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
lifeline.GRACE = 1.0

def agreed(value):
    if rank == 0:
        (folder / "new").write_text(repr(value))
        (folder / "new").rename(folder / "said")
    while not (folder / "said").exists():
        time.sleep(0.01)
    return eval((folder / "said").read_text())

line = lifeline.Lifeline(rank, size, "localhost", agreed, lambda: print("lost one", flush=True))
print("here", flush=True)
for order in sys.stdin:
    if order == "hang\\n":
        time.sleep(100)
    if order == "refuse\\n":
        sys.exit(2)
    if order == "leave\\n":
        line.leave()
        break
"""


@pytest.fixture
def processes(tmp_path):
    """Three that are connected, and wait for orders."""
    command = [sys.executable, "-c", ONE, str(tmp_path)]
    started = [subprocess.Popen([*command, str(rank), "3"], stdin=-1, stdout=-1, text=True) for rank in range(3)]
    for process in started:
        assert process.stdout.readline() == "here\n"
    yield started
    for process in started:
        process.kill()
        process.communicate()


def order(process, word):
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


@pytest.mark.parametrize("dies", [0, 1, 2])
def test_all_that_hang_end_when_one_dies(processes, dies):
    for process in processes:
        order(process, "hang")
    processes[dies].kill()
    began = time.monotonic()
    for rank, process in enumerate(processes):
        assert process.wait(30) == (-signal.SIGKILL if rank == dies else 1)
        assert process.stdout.read() == ("" if rank == dies else "lost one\n")
    assert time.monotonic() - began < 10


def test_those_that_take_leave_are_not_missed(processes):
    for process in processes[:2]:
        order(process, "leave")
        assert process.wait(30) == 0
    time.sleep(1.5)  # longer than the third has to end
    assert processes[2].poll() is None
    order(processes[2], "leave")
    assert (processes[2].wait(30), processes[2].stdout.read()) == (0, "")


def test_one_that_can_say_for_itself_what_happened_does(processes):
    for process in processes:
        order(process, "refuse")
        time.sleep(0.2)
    assert [process.wait(30) for process in processes] == [2, 2, 2]
    assert [process.stdout.read() for process in processes] == ["", "", ""]


def test_a_stranger_is_not_taken_for_one_of_them():
    heard = queue.Queue()

    def agreed(value):
        port, password = value
        with socket.create_connection(("localhost", port)) as stranger:
            stranger.sendall(b"x" * len(password))

        def come():
            with socket.create_connection(("localhost", port)) as other:
                other.sendall(password + LEAVES)
                heard.put(other.recv(1))

        threading.Thread(target=come, daemon=True).start()

    Lifeline(0, 2, "localhost", agreed, lost=lambda: None).leave()
    assert heard.get(timeout=10) == LEAVES


def test_processes_that_cannot_reach_each_other_say_so(monkeypatch):
    monkeypatch.setattr(lifeline, "PATIENCE", 0.1)
    with socket.create_server(("localhost", 0)) as closed:
        port = closed.getsockname()[1]
    assert f"port {port}" in refusal(lambda: Lifeline(1, 2, "localhost", lambda _: (port, b"password"), lost=lambda: None))
    assert "Only 0 of 2 other processes" in refusal(lambda: Lifeline(0, 3, "localhost", lambda _: None, lost=lambda: None))
