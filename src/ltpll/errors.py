"""The one error type that means "your input", and the one warning type that means "this will train, but look at it"."""

from __future__ import annotations

from collections.abc import Sequence


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


class LostProcessError(RuntimeError):
    """One of the processes that train a run together does not answer; the message is one sentence, and no input is to blame."""


class UnknownNameError(InputError, KeyError):
    """A name is not in a registry."""

    # KeyError prints the repr of its argument, which would put the sentence in quotes.
    __str__ = ValueError.__str__


class InputWarning(UserWarning):
    """The input can be used, but something about it is probably not meant."""


class CheckpointWarning(InputWarning):
    """A checkpoint was passed over and the one before it is used."""
