"""The one error type that means "your input", and the one warning type that means "this will train, but look at it"."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

LONGEST = 60
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxtuple, _SHORT.maxset, _SHORT.maxdict, _SHORT.maxstring = 2, 4, 4, 4, 4, LONGEST


def shown(value: object, longest: int = LONGEST) -> str:
    """A value in a message: as Python writes it, on one line and not too long, however much a file has put into it."""
    if isinstance(value, str):
        return repr(value if len(value) <= longest else value[: longest - 1] + "…")
    text = " ".join(_SHORT.repr(value).split())
    return text if len(text) <= 2 * longest else text[: 2 * longest - 1] + "…"


def printable(text: str) -> str:
    """Text of a file's on its way to a terminal, which would obey some of what cannot be seen."""
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else "�" for letter in text)


def first_line(error: BaseException) -> str:
    """What a library says of a damaged file, as a piece of a sentence."""
    text = (str(error).splitlines() or [""])[0].strip().rstrip(".")
    return printable(text or type(error).__name__)[:200]


class InputError(ValueError):
    """The input cannot be used; the message is one sentence that says where and what to do.

    The command line prints the message and exits with 2; anything else that reaches the user as a traceback is our bug.
    """


class NotFiniteError(InputError):
    """Training met a NaN or an infinity; `rows` are those known to have one, `epoch` and `step` count from 1, and None is not known."""

    def __init__(self, message: str, *, epoch: int | None = None, step: int | None = None, rows: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.epoch, self.step, self.rows = epoch, step, tuple(rows)


class BusyError(InputError):
    """A run is being trained by another process."""


class UnknownNameError(InputError, KeyError):
    """A name is not in a registry."""

    # KeyError prints the repr of its argument, which would put the sentence in quotes.
    __str__ = ValueError.__str__


class InputWarning(UserWarning):
    """The input can be used, but something about it is probably not meant."""


class CheckpointWarning(InputWarning):
    """A checkpoint was passed over and the one before it is used."""


@contextmanager
def required_by(what: str, *, install: str, otherwise: str = "") -> Iterator[None]:
    """Around imports of a package that may be missing: the user is told what needs it and what to install."""
    try:
        yield
    except ImportError as error:
        name = (error.name or "a package").partition(".")[0]
        missing = "is not installed" if isinstance(error, ModuleNotFoundError) else f"cannot be imported ({first_line(error)})"
        raise InputError(f"{what} needs {name}, which {missing}: pip install {install}{otherwise}.") from error
