"""Starting processes: with all that the tests can import, and so that they can be interrupted like commands that were typed."""

import os
import signal
import subprocess
import sys


def environment_of_tests(**more):
    """For a process that imports what the tests do."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more}


def typed(arguments, **options):
    """A process that hears an interrupt even where the tests themselves run in the background, whose children ignore it by default."""
    return subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )
