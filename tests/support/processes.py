"""Starting processes: with all that the tests can import, and so that they can be interrupted like
commands that were typed.
"""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

HEARD = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


@contextmanager
def hearing_signals():
    """Hear the signals that a shell tells jobs in the background to ignore, here and in all
    processes started within.
    """
    ignored = [number for number in HEARD if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, HEARD[number])
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def do_not_wait_for_disk():
    """Let this process flush files in no time; only after a power failure would they differ.

    A flush takes milliseconds of waiting, and the tests make thousands of them. As the real one,
    this fails for files that are closed.
    """
    os.fsync = os.fstat


def environment_of_tests(**more):
    """For a process that imports what the tests do."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more}


def typed(arguments, **options):
    """A process in a group of its own, as a shell starts a command."""
    return subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )
