"""`ltpll …` as it is typed, in a process of its own, forked since most commands take less time than importing torch."""

import subprocess
import tempfile
from pathlib import Path

from typer.testing import CliRunner

from ltpll.errors import InputError
from support.forks import shared_forks


def ltpll_here(*arguments, status=0):
    """A command in this process; what the user would be told is returned."""
    from ltpll.cli import app  # here, since how wide it prints is settled by the environment in which it is imported

    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, InputError):
        assert status == 2, result.exception
        message = str(result.exception)
        assert "\n" not in message
        assert message.endswith(".")
        return message
    assert result.exit_code == status, (result.output, result.exception)
    return result.output


def ltpll(*arguments, cwd=None, **environment):
    """What the command printed, and its exit status."""
    arguments = [str(argument) for argument in arguments]
    with tempfile.TemporaryDirectory() as folder:
        printed, errors = Path(folder) / "stdout", Path(folder) / "stderr"
        status, _ = shared_forks().call(
            "survivors.command", *arguments, log=printed, errors=errors, cwd=cwd, environment={"COLUMNS": "100", **environment}
        )
        return subprocess.CompletedProcess(["ltpll", *arguments], status, printed.read_text(), errors.read_text())
