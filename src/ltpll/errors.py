"""Errors: exceptions and warnings about the user's input, and helpers for their messages."""

from __future__ import annotations

import reprlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

LONGEST = 60
WordsOfOption = Callable[[str, str], list[str]]
_words_of_option: ContextVar[WordsOfOption | None] = ContextVar("words_of_option", default=None)
_SHORT = reprlib.Repr()
vars(_SHORT).update(maxlevel=2, maxlist=4, maxtuple=4, maxset=4, maxdict=4, maxstring=LONGEST)


def shown(value: object, longest: int = LONGEST) -> str:
    """Format a value for a message: its repr on one line, shortened if it is long."""
    if isinstance(value, str):
        return repr(value if len(value) <= longest else value[: longest - 1] + "…")
    text = " ".join(_SHORT.repr(value).split())
    return text if len(text) <= 2 * longest else text[: 2 * longest - 1] + "…"


def printable(text: str) -> str:
    """Replace control characters, which a terminal would obey."""
    spaces = "".join(" " if letter.isspace() else letter for letter in text)
    return "".join(letter if letter.isprintable() else "�" for letter in spaces)


@contextmanager
def on_command_line(words_of_option: WordsOfOption) -> Iterator[None]:
    """Let messages name settings by the words that give them a value on the command line."""
    before = _words_of_option.set(words_of_option)
    try:
        yield
    finally:
        _words_of_option.reset(before)


def option(name: str, value: str | int | tuple[str, ...]) -> str:
    """How a message names a setting with its value or values.

    It is `--separator ';'` on the command line, and `separator=';'` in Python.
    """
    words = _words_of_option.get()
    if words is None:
        return f"{name}={shown(value)}"
    values = value if isinstance(value, tuple) else (str(value),)
    return " ".join(shlex.join(words(name, printable(one)[:LONGEST])) for one in values)


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, to be quoted in another message."""
    text = (str(error).splitlines() or [""])[0].strip().rstrip(".")
    return printable(text or type(error).__name__)[:200]


class InputError(ValueError):
    """The input cannot be used.

    The message is one sentence that says where the problem is and what to do. The command line
    prints it and exits with status 2.
    """


class NotFiniteError(InputError):
    """Training produced a NaN or an infinity, in `rows` if known.

    `epoch` and `step` count from 1 and are None if unknown.
    """

    def __init__(
        self,
        message: str,
        *,
        epoch: int | None = None,
        step: int | None = None,
        rows: Sequence[int] = (),
    ) -> None:
        super().__init__(message)
        self.epoch, self.step, self.rows = epoch, step, tuple(rows)


class BusyError(InputError):
    """Another process is training the run."""


class VersionError(InputError):
    """A file has another version of its format: it is neither read nor replaced."""


class UnknownNameError(InputError, KeyError):
    """A name is not in a registry."""

    # KeyError would print the message in quotes.
    __str__ = ValueError.__str__


class InputWarning(UserWarning):
    """The input can be used, but something about it is probably not intended."""


class CheckpointWarning(InputWarning):
    """A checkpoint was skipped and the previous one is used."""


@contextmanager
def required_by(what: str, *, install: str, otherwise: str = "") -> Iterator[None]:
    """Wrap imports of an optional package: the error says what needs it and how to install it."""
    try:
        yield
    except ImportError as error:
        name = (error.name or "a package").partition(".")[0]
        missing = "is not installed"
        if not isinstance(error, ModuleNotFoundError):
            missing = f"cannot be imported ({first_line(error)})"
        which = f"{what} needs {name}, which {missing}"
        raise InputError(f"{which}: pip install {install}{otherwise}.") from error
