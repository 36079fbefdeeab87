"""The command line: each command parses, calls the library and prints; errors of the user's are one sentence and exit status 2."""

from __future__ import annotations

import os
import sys
import warnings
from concurrent.futures.process import BrokenProcessPool
from typing import Annotated, TextIO

import typer

from ltpll import __version__
from ltpll.cli.bound import bound
from ltpll.cli.clean import clean, export, predict
from ltpll.cli.console import console, say_aside, say_error
from ltpll.cli.data import app as data_commands
from ltpll.cli.probe import probe, tsne
from ltpll.cli.report import report
from ltpll.cli.reproduce import reproduce
from ltpll.cli.speed import app as bench_commands
from ltpll.cli.studies import demo, list_parts, toy
from ltpll.cli.train import train
from ltpll.errors import InputError, InputWarning
from ltpll.training.signals import Terminated, exit_on_sigterm

app = typer.Typer(
    help="Long-tailed partial label learning: classifiers from sets of candidate labels when classes are imbalanced.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(train)
app.command()(predict)
app.command()(clean)
app.command()(export)
app.command()(reproduce)
app.command()(report)
app.command()(probe)
app.command()(tsne)
app.command()(bound)
app.add_typer(data_commands, name="data")
app.add_typer(bench_commands, name="bench")
app.command()(toy)
app.command("list")(list_parts)


def main() -> None:
    """Run a command; what the user can mend is said in one sentence, without a traceback."""
    warnings.showwarning = _warn
    # Before torch is imported: its threads are to sleep while they wait for each other, and leave the cores to whoever has work.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    exit_on_sigterm()
    try:
        app()
    except Terminated:
        say_aside("Ended by SIGTERM: the same command goes on.")
        raise
    except InputError as error:
        _fail(str(error))
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _fail(f"{error.strerror or error}{where}.")
    except BrokenProcessPool:
        _fail("A training process was ended from outside, often for lack of memory: run the same command again, with fewer at once.", 1)


def _fail(sentence: str, status: int = 2) -> None:
    say_error(sentence)
    sys.exit(status)


def _warn(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
) -> None:
    if issubclass(category, InputWarning):
        say_aside(f"warning: {message}")
    else:
        (file or sys.stderr).write(warnings.formatwarning(message, category, filename, lineno, line))


def _show_version(wanted: bool) -> None:
    if wanted:
        console.print(f"ltpll {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    processes = os.environ.get("WORLD_SIZE", "1") if "TORCHELASTIC_RUN_ID" in os.environ else "1"
    if processes != "1" and context.invoked_subcommand != "train":
        # All of them would do the same, into the same files.
        raise InputError(f"torchrun started {processes} processes, but only train shares its work among them: leave torchrun out.")
