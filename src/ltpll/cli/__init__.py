"""The command line: each command parses its options, calls the library and prints the result."""

from __future__ import annotations

import io
import os
import sys
import warnings
from typing import Annotated, NoReturn, TextIO

import typer

from ltpll import __version__
from ltpll.cli.bench import app as bench_commands
from ltpll.cli.benchmark import benchmark
from ltpll.cli.bound import bound
from ltpll.cli.clean import clean
from ltpll.cli.console import console, print_error, print_note
from ltpll.cli.data import app as data_commands
from ltpll.cli.demo import demo
from ltpll.cli.embed import embed
from ltpll.cli.export import export
from ltpll.cli.list_parts import list_parts
from ltpll.cli.options import ExperimentCommand
from ltpll.cli.predict import predict
from ltpll.cli.probe import probe, tsne
from ltpll.cli.report import report
from ltpll.cli.reproduce import reproduce
from ltpll.cli.review import review
from ltpll.cli.toy import toy
from ltpll.cli.train import TrainCommand, train
from ltpll.errors import InputError, InputWarning, on_command_line
from ltpll.training.signals import Terminated, exit_on_signals

app = typer.Typer(
    help="Long-tailed partial label learning: train classifiers on sets of candidate labels when classes are imbalanced.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
START, OWN, RESEARCH, INSPECT = "First steps", "Your own data", "Research", "Inspect results"
app.command(rich_help_panel=START)(demo)
app.command("list", rich_help_panel=START)(list_parts)
app.add_typer(data_commands, name="data", rich_help_panel=OWN)
app.command(rich_help_panel=OWN, cls=TrainCommand)(train)
app.command(rich_help_panel=OWN)(clean)
app.command(rich_help_panel=OWN)(report)
app.command(rich_help_panel=OWN)(review)
app.command(rich_help_panel=OWN)(predict)
app.command(rich_help_panel=OWN)(export)
app.command(rich_help_panel=OWN)(embed)
app.command(rich_help_panel=RESEARCH, cls=ExperimentCommand)(benchmark)
app.command(rich_help_panel=RESEARCH)(reproduce)
app.command(rich_help_panel=RESEARCH)(toy)
app.add_typer(bench_commands, name="bench", rich_help_panel=RESEARCH)
app.command(rich_help_panel=INSPECT)(probe)
app.command(rich_help_panel=INSPECT)(tsne)
app.command(rich_help_panel=INSPECT)(bound)


def main() -> None:
    """Run a command; an error that the user can fix is one sentence and exit status 2, without a traceback."""
    warnings.showwarning = _show_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an output that is not UTF-8 lacks some characters
    # Set before torch is imported: waiting threads sleep instead of spinning, which leaves the cores to others.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    exit_on_signals()
    try:
        app()
    except Terminated as error:
        print_note(f"Ended by {error.signal}: rerun the command to resume.")
        raise
    except InputError as error:
        _fail(str(error))
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _fail(f"{error.strerror or error}{where}.")
    except RuntimeError as error:
        from concurrent.futures.process import BrokenProcessPool  # takes a tenth of the start-up time

        if not isinstance(error, BrokenProcessPool):
            raise
        _fail("A training process was killed, often because memory ran out: rerun the command with fewer --workers.", 1)


def _fail(sentence: str, status: int = 2) -> NoReturn:
    print_error(sentence)
    sys.exit(status)


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
) -> None:
    if issubclass(category, InputWarning):
        print_note(f"warning: {message}")
    else:
        (file or sys.stderr).write(warnings.formatwarning(message, category, filename, lineno, line))


def _show_version(show: bool) -> None:
    if show:
        console.print(f"ltpll {__version__}")
        raise typer.Exit


@app.callback()
def _before_every_command(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    context.with_resource(on_command_line())
    processes = os.environ.get("WORLD_SIZE", "1") if "TORCHELASTIC_RUN_ID" in os.environ else "1"
    if processes != "1" and context.invoked_subcommand not in ("train", "benchmark"):
        # Every process would do the same work and write the same files.
        raise InputError(f"torchrun started {processes} processes, but only train and benchmark support it: run the command without it.")
