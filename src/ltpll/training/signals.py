"""Signals: SIGINT and SIGTERM can be delayed until the current step is finished and saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

DELAYED = (signal.SIGINT, signal.SIGTERM)


class DelayedSignals:
    """Signals that have arrived but have not yet been passed to their previous handlers."""

    def __init__(self) -> None:
        self.handlers: dict[int, Any] = {}
        self._pending: int | None = None

    def pending(self) -> int:
        """The number of the pending signal, or 0."""
        return self._pending or 0

    def add(self, number: int) -> None:
        """Add a signal that another process received, unless one is pending; 0 adds nothing."""
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
        again = number == signal.SIGINT and self._pending == number
        self._pending = number
        if again:
            self.deliver()


@contextmanager
def delayed_signals(enabled: bool = True) -> Iterator[DelayedSignals]:
    """Delay SIGINT and SIGTERM until they are delivered, at the latest at the end of the block.

    Ignored signals stay ignored. Python handles signals only in its main thread, so in other threads nothing is delayed.
    """
    signals = DelayedSignals()
    if enabled and threading.current_thread() is threading.main_thread():
        found = {number: signal.getsignal(number) for number in DELAYED}
        signals.handlers = {number: handler for number, handler in found.items() if handler not in (signal.SIG_IGN, None)}
    try:
        for number in signals.handlers:
            signal.signal(number, signals.delay)
        yield signals
    finally:
        for number, handler in signals.handlers.items():
            signal.signal(number, handler)
        signals.deliver()


class Terminated(SystemExit):
    """SIGTERM, as an exception."""


def exit_on_sigterm() -> None:
    """From now on, SIGTERM raises an exception, so that everything is cleaned up, and the exit status is 143."""

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated(128 + number)

    signal.signal(signal.SIGTERM, terminate)
