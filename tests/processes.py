"""Starting a command so that it can be interrupted like one that was typed."""

import signal
import subprocess


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
