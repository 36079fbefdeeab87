"""Lifeline: connections that break when a process dies, so that another one whose GPU waits for it in vain can end."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from ltpll.errors import InputError

GRACE = 5.0  # seconds in which the main thread can say for itself what happened, and end
PATIENCE = 60.0  # seconds for all to connect
LEAVES, LOST = b".", b"!"
ADVICE = "processes of one run talk to each other on ports of their own choice, which a firewall between them must let through."
# A machine that is cut off sends nothing when it goes: asked after five silent seconds, and given up after three more questions.
QUESTIONS = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


class Lifeline:
    """Connects the first of `size` processes with each other one, and listens in threads of its own.

    NCCL may wait for a process that is gone for a minute, or forever, and the main thread with it. So if a connection breaks before its
    end took leave, all hear of it; where the main thread has not ended a few seconds later, `lost` is called, which says so, and the
    process ends with status 1. `agreed` gives all processes what the first one says.
    """

    def __init__(self, rank: int, size: int, address: str, agreed: Callable[[Any], Any], lost: Callable[[], None]) -> None:
        self._lost, self._once = lost, threading.Lock()
        self._ends = _accepted(size - 1, agreed) if rank == 0 else [_connected(address, agreed)]
        for end in self._ends:
            end.settimeout(None)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in QUESTIONS.items():
                if hasattr(socket, name):
                    end.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            threading.Thread(target=self._listen, args=(end,), daemon=True, name="lifeline").start()

    def leave(self) -> None:
        """Called by a process whose work is done, which is then not missed."""
        self._tell(LEAVES)

    def end(self) -> NoReturn:
        """Say that another process is lost, and end this one where it stands.

        Without taking leave of anything: what waits for the lost one on a GPU cannot be dropped, not even by the end of Python.
        """
        self._lost()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)

    def _tell(self, word: bytes) -> None:
        for end in self._ends:
            try:
                end.sendall(word)
            except OSError:
                continue  # it is gone

    def _listen(self, end: socket.socket) -> None:
        try:
            word = end.recv(1)
        except OSError:
            word = b""
        if word != LEAVES and self._once.acquire(blocking=False):
            self._tell(LOST)  # others are connected with the first process only
            time.sleep(GRACE)
            self.end()


def _accepted(n: int, agreed: Callable[[Any], Any]) -> list[socket.socket]:
    """The connections of n processes that know the password."""
    both = socket.has_dualstack_ipv6()
    with socket.create_server(("", 0), family=socket.AF_INET6 if both else socket.AF_INET, dualstack_ipv6=both) as server:
        password = secrets.token_bytes(16)
        port = server.getsockname()[1]
        agreed((port, password))
        server.settimeout(PATIENCE)
        found: list[socket.socket] = []
        while len(found) < n:
            try:
                end, _ = server.accept()
            except TimeoutError:
                raise InputError(f"Only {len(found)} of {n} other processes have come to port {port} of the first one: {ADVICE}") from None
            end.settimeout(PATIENCE)
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
    """The first n bytes that come, or nothing of one who does not speak."""
    try:
        return end.recv(n, socket.MSG_WAITALL)
    except OSError:
        return b""
