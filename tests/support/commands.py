"""The command line, called in the test's own process or in a forked child, since importing torch
takes longer than most commands.
"""

import subprocess
import tempfile
from functools import partial
from importlib import import_module
from pathlib import Path

from typer.testing import CliRunner

from ltpll.errors import InputError
from support.fork_server import shared_fork_server


def ltpll_here(*arguments, status=0, package="ltpll"):
    """Run a command in this process and return what it prints, or the message of its error."""
    app = import_module(
        f"{package}.cli"
    ).app  # not at the top: it reads the width of the terminal when it is imported
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, InputError):
        assert status == 2, result.exception
        message = str(result.exception)
        assert "\n" not in message
        assert message.endswith(".")
        return message
    assert result.exit_code == status, (result.output, result.exception)
    return result.output


research_here = partial(ltpll_here, package="ltpll_research")


def ltpll(*arguments, cwd=None, called="command", **environment):
    """Run a command in a child process, as `subprocess.run` does; `called` names the function of
    interrupted_runs that runs it.
    """
    function, *first = called if isinstance(called, tuple) else (called,)
    arguments = [str(argument) for argument in arguments]
    with tempfile.TemporaryDirectory() as folder:
        printed, errors = Path(folder) / "stdout", Path(folder) / "stderr"
        status, _ = shared_fork_server().call(
            f"interrupted_runs.{function}",
            *first,
            *arguments,
            log=printed,
            errors=errors,
            cwd=cwd,
            environment={"COLUMNS": "100", **environment},
        )
        return subprocess.CompletedProcess(
            ["ltpll", *arguments], status, printed.read_text(), errors.read_text()
        )


research = partial(ltpll, called="research_command")
