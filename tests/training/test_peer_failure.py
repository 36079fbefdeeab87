"""Processes whose main threads hang, as those do that wait for a GPU."""

import queue
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from ltpll.training import peer_failure as lifeline
from ltpll.training.peer_failure import LEAVES, Lifeline
from support.refusals import refusal

ONE = """
import sys, time
from pathlib import Path
from ltpll.training import peer_failure as lifeline

folder, rank, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
lifeline.GRACE, lifeline.MOMENT = 1.0, 0.2

def agreed(value):
    if rank == 0:
        (folder / "new").write_text(repr(value))
        (folder / "new").rename(folder / "said")
    while not (folder / "said").exists():
        time.sleep(0.01)
    return eval((folder / "said").read_text())

def say(sentence):
    if (folder / "nobody reads").exists():
        raise BrokenPipeError
    print(sentence, flush=True)

line = lifeline.Lifeline(rank, size, "localhost", agreed, say)
print("here", flush=True)
for order in sys.stdin:
    if order == "hang\\n":
        time.sleep(100)
    if order == "notice\\n":
        line.end()
    if order == "fail\\n":
        line.fail()
        sys.exit(2)
    if order == "leave\\n":
        line.leave()
    if order == "exit\\n":
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


def order(process, *words):
    process.stdin.write("".join(f"{word}\n" for word in words))
    process.stdin.flush()


@pytest.mark.parametrize("dies", [0, 1, 2])
def test_all_that_hang_end_when_one_dies(processes, dies):
    for process in processes:
        order(process, "hang")
    processes[dies].kill()
    began = time.monotonic()
    for rank, process in enumerate(processes):
        assert process.wait(30) == (-signal.SIGKILL if rank == dies else 1)
        said = process.stdout.read()
        assert said == "" if rank == dies else said.startswith(f"Process {rank} of 3 has lost another process")
    assert 0.9 < time.monotonic() - began < 10


def test_one_that_nobody_hears_ends_too(processes, tmp_path):
    (tmp_path / "nobody reads").touch()
    order(processes[0], "hang")
    processes[1].kill()
    assert processes[0].wait(30) == 1


def test_one_that_notices_by_itself_ends_at_once_but_not_before_the_one_that_is_to_blame(processes):
    order(processes[0], "notice")
    time.sleep(0.4)
    assert processes[0].poll() is None  # nobody has died yet
    processes[1].kill()
    began = time.monotonic()
    assert processes[0].wait(30) == 1
    assert 0.2 <= time.monotonic() - began < 0.9
    assert "has lost another process" in processes[0].stdout.read()


def test_those_that_take_leave_are_not_missed_and_miss_nobody(processes):
    for process in processes[:2]:
        order(process, "leave")
    time.sleep(0.2)
    processes[1].kill()
    processes[2].kill()  # before it has taken leave
    time.sleep(1.5)  # longer than the first would have to end
    assert processes[0].poll() is None
    order(processes[0], "exit")
    assert (processes[0].wait(30), processes[0].stdout.read()) == (0, "")


def test_those_that_can_say_for_themselves_what_happened_do(processes):
    for process in processes:
        order(process, "fail")
        time.sleep(0.2)
    assert [process.wait(30) for process in processes] == [2, 2, 2]
    assert [process.stdout.read() for process in processes] == ["", "", ""]


def test_those_that_hang_when_another_one_fails_say_that_it_has(processes):
    order(processes[0], "hang")
    order(processes[2], "hang")
    order(processes[1], "fail")
    for rank in (0, 2):
        assert processes[rank].wait(30) == 1
        assert processes[rank].stdout.read() == f"Process {rank} of 3 ends because another process failed: look at its message.\n"


def test_a_stranger_is_not_taken_for_one_of_them_and_holds_nobody_up(monkeypatch):
    monkeypatch.setattr(lifeline, "REPLY_TIMEOUT", 0.1)
    heard, silent = queue.Queue(), []

    def agreed(value):
        port, password = value
        silent.append(socket.create_connection(("localhost", port)))
        with socket.create_connection(("localhost", port)) as stranger:
            stranger.sendall(b"x" * len(password))

        def come():
            with socket.create_connection(("localhost", port)) as other:
                other.sendall(password + LEAVES)
                heard.put(other.recv(1))
                other.settimeout(0.3)
                heard.put(lifeline._received(other, 1))

        threading.Thread(target=come, daemon=True).start()

    began = time.monotonic()
    line = Lifeline(0, 2, "localhost", agreed, say=print)
    line.leave()
    line.leave()
    assert heard.get(timeout=10) == LEAVES
    assert heard.get(timeout=10) == b""  # leave is taken once, however often it is said
    assert time.monotonic() - began < 5
    silent[0].close()


def test_processes_that_cannot_reach_each_other_say_so(monkeypatch):
    monkeypatch.setattr(lifeline, "CONNECT_TIMEOUT", 0.1)
    with socket.create_server(("localhost", 0)) as closed:
        port = closed.getsockname()[1]
    assert f"port {port}" in refusal(lambda: Lifeline(1, 2, "localhost", lambda _: (port, b"password"), say=print))
    assert "2 of 2 other processes did not connect" in refusal(lambda: Lifeline(0, 3, "localhost", lambda _: None, say=print))
