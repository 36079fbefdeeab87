import os
import signal
import threading

import pytest

from ltpll.training.signals import (
    Terminated,
    delayed_signals,
    exit_on_signals,
    leave_closed_terminal,
)


@pytest.fixture
def heard():
    """Which signals reached a handler of this test's own."""
    numbers = []
    before = {
        number: signal.signal(number, lambda n, frame: numbers.append(n))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_waits_until_it_is_delivered_and_only_then_reaches_its_handler(heard, number):
    with delayed_signals() as signals:
        assert not signals.pending()
        signals.deliver()
        send(number)
        assert signals.pending()
        assert heard == []
        signals.deliver()
        assert heard == [number]
        assert not signals.pending()
        send(number)
    assert heard == [number] * 2  # at the end at the latest
    send(number)
    assert heard == [number] * 3


def test_a_second_interrupt_does_not_wait_and_a_second_sigterm_does(heard):
    with delayed_signals() as signals:
        send(signal.SIGTERM)
        send(signal.SIGTERM)
        assert heard == []
        signals.deliver()
        heard.clear()
        send(signal.SIGINT)
        send(signal.SIGINT)
        assert heard == [signal.SIGINT]
        assert not signals.pending()


def test_a_signal_is_delivered_even_if_something_else_goes_wrong_first(heard):
    def work():
        with delayed_signals():
            send(signal.SIGTERM)
            raise ValueError("something else")

    with pytest.raises(ValueError, match="something else"):
        work()
    assert heard == [signal.SIGTERM]


def test_an_interrupt_is_a_keyboard_interrupt_after_all():
    reached = []

    def work():
        with delayed_signals() as signals:
            send(signal.SIGINT)
            reached.append("held back")
            signals.deliver()
            reached.append("never")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
    finally:
        signal.signal(signal.SIGINT, before)
    assert reached == ["held back"]


def test_what_is_ignored_stays_ignored(heard):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with delayed_signals() as signals:
        send(signal.SIGINT)
        assert not signals.pending()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


@pytest.mark.parametrize("wanted", [True, False])
def test_in_another_thread_or_unasked_nothing_is_delayed_signals(heard, wanted):
    handlers = []

    def look():
        with delayed_signals(wanted) as signals:
            handlers.append(signal.getsignal(signal.SIGTERM))
            assert not signals.pending()

    if wanted:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    else:
        look()
    assert handlers == [signal.getsignal(signal.SIGTERM)]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_to_end_is_an_exception_with_its_status(heard, number, status):
    exit_on_signals()
    with pytest.raises(Terminated) as end:
        send(number)
    assert (end.value.code, end.value.signal) == (status, signal.Signals(number).name)


def test_a_process_that_ignores_closed_terminals_goes_on_doing_so(heard):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` does
    exit_on_signals()
    send(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_what_is_printed_to_a_closed_terminal_goes_nowhere(tmp_path):
    other_end, terminal = os.openpty()
    with (tmp_path / "file").open("wb") as file:
        leave_closed_terminal((terminal, file.fileno()))
        assert os.isatty(terminal)
        os.close(other_end)
        leave_closed_terminal((terminal, file.fileno()))
        assert os.write(terminal, b"x") == os.write(file.fileno(), b"y") == 1
    os.close(terminal)
    assert (tmp_path / "file").read_bytes() == b"y"
