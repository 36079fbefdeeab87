"""Signals: SIGINT, SIGTERM and SIGHUP wait until the current step is finished and saved."""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

HANGUP = getattr(signal, "SIGHUP", None)  # a terminal was closed; Windows has no such signal
ENDING = (signal.SIGTERM,) if HANGUP is None else (signal.SIGTERM, HANGUP)
DELAYED = (signal.SIGINT, *ENDING)


class DelayedSignals:
    """Signals that have arrived but have not yet been passed to their previous handlers."""

    def __init__(self) -> None:
        self.handlers: dict[int, Any] = {}
        self._pending: int | None = None

    def pending(self) -> int:
        """The number of the pending signal, or 0."""
        return self._pending or 0

    def receive(self, number: int) -> None:
        """Note a signal that another process received, unless one is pending; 0 is none."""
        self._pending = self._pending or number or None

    def deliver(self) -> None:
        """Pass the pending signal, if any, to its previous handler."""
        number, self._pending = self._pending, None
        if number is None:
            return
        handler = self.handlers.get(number)
        if handler is None:
            raise SystemExit(128 + number)  # ignored here, but received by another process
        if callable(handler):
            handler(number, None)
        else:
            # The system's default action.
            signal.signal(number, handler)
            signal.raise_signal(number)

    def delay(self, number: int, frame: FrameType | None) -> None:
        """The handler in the meantime; a second SIGINT is delivered immediately."""
        if number == HANGUP:
            leave_closed_terminal()
        again = number == signal.SIGINT and self._pending == number
        self._pending = number
        if again:
            self.deliver()


@contextmanager
def delayed_signals(enabled: bool = True) -> Iterator[DelayedSignals]:
    """Delay SIGINT, SIGTERM and SIGHUP until they are delivered, or the block ends.

    Ignored signals stay ignored. Python handles signals only in its main thread, so in other
    threads nothing is delayed.
    """
    signals = DelayedSignals()
    if enabled and threading.current_thread() is threading.main_thread():
        for number in DELAYED:
            if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None):
                signals.handlers[number] = handler
    try:
        for number in signals.handlers:
            signal.signal(number, signals.delay)
        yield signals
    finally:
        for number, handler in signals.handlers.items():
            signal.signal(number, handler)
        signals.deliver()


def leave_closed_terminal(descriptors: Iterable[int] = (1, 2)) -> None:
    """Discard output: writing to a closed terminal fails, and the run would not be saved."""
    for descriptor in descriptors:
        if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)


class Terminated(SystemExit):
    """SIGTERM or SIGHUP, as an exception, whose exit status is 128 and the number of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = signal.Signals(number).name


def exit_on_signals() -> None:
    """From now on, SIGTERM and SIGHUP raise an exception, so that everything is cleaned up.

    With `nohup`, SIGHUP stays ignored.
    """

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        if number == HANGUP:
            leave_closed_terminal()
        raise Terminated(number)

    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, terminate)
