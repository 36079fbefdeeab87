"""What every program of this project does around its commands: errors and the version."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, NoReturn, TextIO

import typer

from ltpll.cli.console import console, print_error, print_note
from ltpll.errors import InputError, InputWarning, WordsOfOption, on_command_line
from ltpll.training.signals import Terminated, exit_on_signals


def make_program(
    name: str, summary: str, *, trained_by: Sequence[str], words_of_option: WordsOfOption
) -> typer.Typer:
    """A program without commands.

    Args:
        name: What it is called.
        summary: What it is for.
        trained_by: The commands that torchrun may start.
        words_of_option: The words that give a setting a value, for messages.
    """
    made = typer.Typer(
        name=name,
        help=summary,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )

    def show_version(show: bool) -> None:
        if show:
            from ltpll import __version__  # read from the package's metadata, which takes time

            console.print(f"{name} {__version__}")
            raise typer.Exit

    # Types are objects here, because Typer cannot look up the names of a function inside another.
    version = typer.Option(
        "--version", callback=show_version, is_eager=True, help="Show the version and exit."
    )

    def before_every_command(context: typer.Context, version: bool = False) -> None:
        context.with_resource(on_command_line(words_of_option))
        processes = (
            os.environ.get("WORLD_SIZE", "1") if "TORCHELASTIC_RUN_ID" in os.environ else "1"
        )
        if processes != "1" and context.invoked_subcommand not in trained_by:
            # Every process would do the same work and write the same files.
            raise InputError(
                f"torchrun started {processes} processes, but only {' and '.join(trained_by)} "
                "supports it: run the command without it."
            )

    before_every_command.__annotations__["version"] = Annotated[bool, version]
    made.callback()(before_every_command)
    return made


def run(app: typer.Typer) -> None:
    """Run a command; an error that the user can fix is one sentence and exit status 2, without a
    traceback.
    """
    warnings.showwarning = _show_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="replace"
            )  # an output that is not UTF-8 lacks some characters
    # Set before torch is imported: waiting threads sleep instead of spinning, which leaves the
    # cores to others.
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
        from concurrent.futures.process import (
            BrokenProcessPool,
        )  # takes a tenth of the start-up time

        if not isinstance(error, BrokenProcessPool):
            raise
        _fail(
            "A training process was killed, often because memory ran out: rerun the command "
            "with fewer workers.",
            1,
        )


def _fail(sentence: str, status: int = 2) -> NoReturn:
    print_error(sentence)
    sys.exit(status)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, InputWarning):
        print_note(f"warning: {message}")
    else:
        (file or sys.stderr).write(
            warnings.formatwarning(message, category, filename, lineno, line)
        )
