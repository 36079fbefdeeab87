"""`ltpll …` as it is typed, in a process of its own, forked since most commands take less time than importing torch."""

import subprocess
import tempfile
from pathlib import Path

from forks import shared_forks


def ltpll(*arguments, cwd=None, **environment):
    """What the command printed, and its exit status."""
    arguments = [str(argument) for argument in arguments]
    with tempfile.TemporaryDirectory() as folder:
        printed, errors = Path(folder) / "stdout", Path(folder) / "stderr"
        status, _ = shared_forks().call(
            "survivors.command", *arguments, log=printed, errors=errors, cwd=cwd, environment={"COLUMNS": "100", **environment}
        )
        return subprocess.CompletedProcess(["ltpll", *arguments], status, printed.read_text(), errors.read_text())
