"""Lifeline: connections that break when a process dies, so that another one whose GPU waits for it in vain can end."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from ltpll.errors import InputError

GRACE = 20.0  # seconds in which the main thread can say for itself what happened, and end
PATIENCE = 20.0  # seconds for all to connect
SHORTLY = 2.0  # seconds for one that has connected to say the password, or for one that fails to be gone
MOMENT = 1.0  # seconds by which the end of the process that is to blame comes first, so that torchrun names that one
# A process is done, ends with an error of its own, or has lost another one.
LEAVES, FAILS, LOST = b".", b"?", b"!"
# A machine that is cut off sends nothing when it goes: asked after five silent seconds, and given up after three more questions.
QUESTIONS = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
ADVICE = "processes of one run talk to each other on ports of their own choice, which a firewall between them must let through."


class Lifeline:
    """Connects the first of `size` processes with each other one, and listens in threads of its own.

    NCCL may wait for a process that is gone for a minute, or forever, and the main thread with it. So when a connection breaks before its
    end took leave, all hear of it; where the main thread has not ended some seconds later, the process `say`s so and ends with status 1.
    `agreed` gives all processes what the first one says.
    """

    def __init__(self, rank: int, size: int, address: str, agreed: Callable[[Any], Any], say: Callable[[str], None]) -> None:
        self._who, self._say = (rank, size), say
        self._left = self._failed = False
        self._news, self._gone = threading.Lock(), threading.Event()
        self._ends = _accepted(size - 1, agreed) if rank == 0 else [_connected(address, agreed)]
        for end in self._ends:
            end.settimeout(None)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in QUESTIONS.items():
                if hasattr(socket, name):
                    end.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            threading.Thread(target=self._listen, args=(end,), daemon=True, name="lifeline").start()

    def leave(self) -> None:
        """Called by a process that others no longer need, and that needs none of them."""
        if not self._left:
            self._left = True
            self._tell(LEAVES)

    def fail(self) -> None:
        """Called by a process that ends with an error of its own, which it says itself."""
        self._left = True
        self._tell(FAILS)

    def end(self) -> NoReturn:
        """Called by a process whose main thread has noticed that another one is lost."""
        try:
            self._gone.wait(GRACE)
            time.sleep(MOMENT)
        finally:  # also where torchrun tells it to end meanwhile
            give_up(*self._who, self._say, self._failed)

    def _tell(self, word: bytes) -> None:
        for end in self._ends:
            with suppress(OSError):  # of one that is gone
                end.sendall(word)

    def _listen(self, end: socket.socket) -> None:
        word = _said(end, 1)
        if word == LEAVES:
            _said(end, 1)  # nothing, when it is gone
            self._gone.set()
            return
        # All that follows from one loss, such as the ends of others, is no news.
        if not self._news.acquire(blocking=False):
            return
        self._failed = word == FAILS
        self._tell(word or LOST)  # others are connected with the first process only
        if self._failed:
            end.settimeout(SHORTLY)
            _said(end, 1)
        self._gone.set()
        time.sleep(GRACE)
        if not self._left:
            give_up(*self._who, self._say, self._failed)


def give_up(rank: int, size: int, say: Callable[[str], None], failed: bool = False) -> NoReturn:
    """Say that another process is lost, and end this one where it stands.

    Without taking leave of anything: what waits for the lost one on a GPU cannot be dropped, not even by the end of Python.
    """
    died = "has lost another one, which died or hangs: look at what that one said last; the same command goes on from the last checkpoint."
    try:
        say(f"Process {rank} of {size} {'ends since another one has: look at what that one said.' if failed else died}")
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # also where nobody reads what is said
        os._exit(1)


# ---- connecting ----------------------------------------------------------------------------------------------------------


def _accepted(n: int, agreed: Callable[[Any], Any]) -> list[socket.socket]:
    """The connections of n processes that know the password."""
    both = socket.has_dualstack_ipv6()
    with socket.create_server(("", 0), family=socket.AF_INET6 if both else socket.AF_INET, dualstack_ipv6=both) as server:
        password = secrets.token_bytes(16)
        port = server.getsockname()[1]
        agreed((port, password))
        deadline = time.monotonic() + PATIENCE
        found: list[socket.socket] = []
        while len(found) < n:
            server.settimeout(max(deadline - time.monotonic(), 0.01))
            try:
                end, _ = server.accept()
            except TimeoutError:
                raise InputError(
                    f"Only {len(found)} of {n} other processes have come to port {port} of the first one, so that others have died, "
                    f"or cannot reach it: {ADVICE}"
                ) from None
            end.settimeout(SHORTLY)
            if _said(end, len(password)) == password:
                found.append(end)
            else:
                end.close()
        return found


def _connected(address: str, agreed: Callable[[Any], Any]) -> socket.socket:
    port, password = agreed(None)
    try:
        end = socket.create_connection((address, port), PATIENCE)
        end.sendall(password)
    except OSError as error:
        raise InputError(f"The first process cannot be reached at {address}, port {port} ({error.strerror or error}): {ADVICE}") from None
    return end


def _said(end: socket.socket, n: int) -> bytes:
    """The first n bytes that come, or nothing of one who is gone or does not speak."""
    try:
        return end.recv(n, socket.MSG_WAITALL)
    except OSError:
        return b""
