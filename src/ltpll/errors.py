"""The one error type that means "your input", and the one warning type that means "this will train, but look at it"."""

from __future__ import annotations


class InputError(ValueError):
    """The input cannot be used; the message is one sentence that says where and what to do.

    The command line prints the message and exits with 2; anything else that reaches the user as a traceback is our bug.
    """


class NotFiniteError(InputError):
    """Training met a NaN or an infinity in the network's logits."""


class BusyError(InputError):
    """A run is being trained by another process."""


class UnknownNameError(InputError, KeyError):
    """A name is not in a registry."""

    # KeyError prints the repr of its argument, which would put the sentence in quotes.
    __str__ = ValueError.__str__


class InputWarning(UserWarning):
    """The input can be used, but something about it is probably not meant."""
