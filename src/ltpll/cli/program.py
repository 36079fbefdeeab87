"""What every program of this project does around its commands: errors and the version."""

# Without postponed annotations: Typer cannot look up the names of a function inside another.

import gc
import io
import os
import sys
import warnings
from typing import Annotated, Any

import typer

from ltpll.cli.console import console, print_note
from ltpll.errors import InputError, InputWarning, WordsOfOption, on_command_line
from ltpll.training.signals import Terminated, exit_on_signals


def make_program(name: str, summary: str, words_of_option: WordsOfOption) -> typer.Typer:
    """A program without commands; `words_of_option` says how messages name a setting."""
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

    version = typer.Option(
        "--version", callback=show_version, is_eager=True, help="Show the version and exit."
    )

    @made.callback()
    def before_every_command(
        context: typer.Context, version: Annotated[bool, version] = False
    ) -> None:
        context.with_resource(on_command_line(words_of_option))

    return made


def run(app: typer.Typer) -> None:
    """Run a command; an error that the user can fix is one sentence and exit status 2, without a
    traceback.
    """
    show_other_warning = warnings.showwarning

    def show_warning(message: Any, category: type[Warning], *where: Any) -> None:
        if issubclass(category, InputWarning):
            print_note(f"warning: {message}")
        else:
            show_other_warning(message, category, *where)

    warnings.showwarning = show_warning  # type: ignore[assignment]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # characters that the encoding lacks
    # Set before torch is imported: waiting threads sleep instead of spinning, which leaves the
    # cores to others.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    exit_on_signals()
    try:
        app()
        return
    except Terminated as error:
        print_note(f"Ended by {error.signal}: rerun the command to resume.")
        raise
    except (InputError, OSError) as error:
        sentence = str(error)
        if isinstance(error, OSError):
            where = f" ({error.filename})" if error.filename else ""
            sentence = f"{error.strerror or error}{where}."
    print_note(f"error: {sentence}")
    # The error has to let go of what it was raised in first, such as a table that is being read:
    # threads of libraries that are still at work when Python ends may abort the process.
    gc.collect()
    sys.exit(2)
