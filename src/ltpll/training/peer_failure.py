"""Peer failure: connections between processes that break when one dies, so that the others end even if their GPUs wait for it."""

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

GRACE = 20.0  # seconds in which the main thread can report the failure itself and end
CONNECT_TIMEOUT = 20.0  # seconds for all processes to connect
REPLY_TIMEOUT = 2.0  # seconds for a connected process to send the password, or for a failing one to exit
MOMENT = 1.0  # seconds by which the process that is to blame exits first, so that torchrun names it
# Messages: a process is done, fails with its own error, or has lost another one.
LEAVES, FAILS, LOST = b".", b"?", b"!"
# A disconnected machine sends no message: probe after five silent seconds, and give up after three more probes.
KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
ADVICE = "the processes of a run communicate on freely chosen ports, which a firewall between them must allow."


class Lifeline:
    """Connects the first of `size` processes with every other one, and watches the connections in background threads.

    NCCL may wait for a lost process for a minute or forever, and the main thread with it. When a connection breaks before its process has
    announced that it is done, all processes are told; if the main thread has not ended some seconds later, the process reports the loss
    and exits with status 1.

    Args:
        rank: The number of this process.
        size: The number of processes.
        address: The address of the first process.
        agreed: Returns the first process's value on all processes.
        say: Prints a message.
    """

    def __init__(self, rank: int, size: int, address: str, agreed: Callable[[Any], Any], say: Callable[[str], None]) -> None:
        self._who, self._say = (rank, size), say
        self._left = self._failed = False
        self._news, self._gone = threading.Lock(), threading.Event()
        self._ends = _accepted(size - 1, agreed) if rank == 0 else [_connected(address, agreed)]
        for end in self._ends:
            end.settimeout(None)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in KEEPALIVE.items():
                if hasattr(socket, name):
                    end.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            threading.Thread(target=self._listen, args=(end,), daemon=True, name="lifeline").start()

    def leave(self) -> None:
        """Announce that the others no longer need this process, nor it them."""
        if not self._left:
            self._left = True
            self._tell(LEAVES)

    def fail(self) -> None:
        """Announce that this process ends with its own error, which it reports itself."""
        self._left = True
        self._tell(FAILS)

    def end(self) -> NoReturn:
        """End this process, whose main thread has noticed the loss of another one."""
        try:
            self._gone.wait(GRACE)
            time.sleep(MOMENT)
        finally:  # also if torchrun terminates it meanwhile
            exit_after_loss(*self._who, self._say, self._failed)

    def _tell(self, word: bytes) -> None:
        for end in self._ends:
            with suppress(OSError):  # the process may be gone
                end.sendall(word)

    def _listen(self, end: socket.socket) -> None:
        word = _received(end, 1)
        if word == LEAVES:
            _received(end, 1)  # returns when the process is gone
            self._gone.set()
            return
        # Only the first loss counts; others follow from it.
        if not self._news.acquire(blocking=False):
            return
        self._failed = word == FAILS
        self._tell(word or LOST)  # the others are connected to the first process only
        if self._failed:
            end.settimeout(REPLY_TIMEOUT)
            _received(end, 1)
        self._gone.set()
        time.sleep(GRACE)
        if not self._left:
            exit_after_loss(*self._who, self._say, self._failed)


def exit_after_loss(rank: int, size: int, say: Callable[[str], None], failed: bool = False) -> NoReturn:
    """Report that another process is lost, and exit immediately.

    Nothing is cleaned up: work on the GPU that waits for the lost process blocks forever, even when Python shuts down.
    """
    died = "has lost another process, which died or hangs: look at its last message, and rerun the command to resume."
    try:
        say(f"Process {rank} of {size} {'ends because another process failed: look at its message.' if failed else died}")
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # also if the message cannot be printed
        os._exit(1)


# ---- connecting ----------------------------------------------------------------------------------------------------------


def _accepted(n: int, agreed: Callable[[Any], Any]) -> list[socket.socket]:
    """Accept connections from n processes that know the password."""
    both = socket.has_dualstack_ipv6()
    with socket.create_server(("", 0), family=socket.AF_INET6 if both else socket.AF_INET, dualstack_ipv6=both) as server:
        password = secrets.token_bytes(16)
        port = server.getsockname()[1]
        agreed((port, password))
        deadline = time.monotonic() + CONNECT_TIMEOUT
        found: list[socket.socket] = []
        while len(found) < n:
            server.settimeout(max(deadline - time.monotonic(), 0.01))
            try:
                end, _ = server.accept()
            except TimeoutError:
                raise InputError(
                    f"{n - len(found)} of {n} other processes did not connect to port {port} of the first one: they have died, "
                    f"or cannot reach it; {ADVICE}"
                ) from None
            end.settimeout(REPLY_TIMEOUT)
            if _received(end, len(password)) == password:
                found.append(end)
            else:
                end.close()
        return found


def _connected(address: str, agreed: Callable[[Any], Any]) -> socket.socket:
    port, password = agreed(None)
    try:
        end = socket.create_connection((address, port), CONNECT_TIMEOUT)
        end.sendall(password)
    except OSError as error:
        raise InputError(f"Cannot reach the first process at {address}, port {port} ({error.strerror or error}): {ADVICE}") from None
    return end


def _received(end: socket.socket, n: int) -> bytes:
    """Receive n bytes; returns nothing if the other end is gone or sends nothing in time."""
    try:
        return end.recv(n, socket.MSG_WAITALL)
    except OSError:
        return b""
