"""Signals: an interrupt or a request to end that is held back until the step at hand is done and written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

HELD_BACK = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Those that have come and wait to be delivered to whoever handled them before."""

    def __init__(self) -> None:
        self.before: dict[int, Any] = {}
        self._waiting: int | None = None

    def waiting(self) -> int:
        """The number of the one that waits, or 0."""
        return self._waiting or 0

    def told(self, number: int) -> None:
        """Take up a signal that another process got, unless there was one of our own; nothing, if it is 0."""
        self._waiting = self._waiting or number or None

    def deliver(self) -> None:
        """Let the one that waits have the effect that it would have had at once; nothing, if none waits."""
        number, self._waiting = self._waiting, None
        if number is None:
            return
        handler = self.before.get(number)
        if handler is None:
            raise SystemExit(128 + number)  # ignored here, but another process was told
        if callable(handler):
            handler(number, None)
        else:
            # Nobody but the system handles it.
            signal.signal(number, handler)
            signal.raise_signal(number)

    def hold_back(self, number: int, frame: FrameType | None) -> None:
        impatient = number == signal.SIGINT and self._waiting == number
        self._waiting = number
        if impatient:
            self.deliver()


@contextmanager
def held_back(wanted: bool = True) -> Iterator[Signals]:
    """SIGINT and SIGTERM wait until they are delivered, at the latest at the end; a second SIGINT does not wait.

    What is ignored stays ignored. Python hears signals in its main thread alone, so that in another one nothing is held back.
    """
    signals = Signals()
    if wanted and threading.current_thread() is threading.main_thread():
        found = {number: signal.getsignal(number) for number in HELD_BACK}
        signals.before = {number: handler for number, handler in found.items() if handler not in (signal.SIG_IGN, None)}
    try:
        for number in signals.before:
            signal.signal(number, signals.hold_back)
        yield signals
    finally:
        for number, handler in signals.before.items():
            signal.signal(number, handler)
        signals.deliver()


class Terminated(SystemExit):
    """SIGTERM, as an exception."""


def exit_on_sigterm() -> None:
    """From now on SIGTERM ends this process as an exception does, with everything cleaned up behind it, and with the status 143."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated(128 + number)

    signal.signal(signal.SIGTERM, leave)
