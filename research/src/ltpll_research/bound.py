"""Proposition 1 of the RECORDS paper: how far the learned class prior can be from the true one."""

from __future__ import annotations

import math

from ltpll.errors import InputError


def prior_bound(n: int, n_classes: int, natarajan: float, ambiguity: float, delta: float) -> float:
    """Bound the L2 distance between the learned and the true class prior.

    The bound is 4 / ((ln 2 − ln(1 + η)) N) · (d (ln 2N + 2 ln C) − ln δ + ln 2). Class
    distributions are never further apart than √2,
    so a larger bound is vacuous.

    Args:
        n: The number of examples N.
        n_classes: The number of classes C.
        natarajan: The Natarajan dimension d of the classifiers.
        ambiguity: The ambiguity degree η, the largest probability that a wrong label joins a set.
        delta: The probability δ that the distance exceeds the bound.

    Returns:
        The bound.

    Raises:
        InputError: An argument is out of range.

    Examples:
        >>> round(prior_bound(1_000_000, 10, natarajan=100, ambiguity=0.5, delta=0.05), 3)
        0.027
    """
    if n < 1 or n_classes < 2 or natarajan <= 0:
        raise InputError(
            "The bound needs examples, at least two classes and a positive dimension, not "
            f"{n}, {n_classes} and {natarajan}."
        )
    if not 0 <= ambiguity < 1:
        raise InputError(
            f"The ambiguity degree is {ambiguity}: the bound needs it below 1, and not below 0."
        )
    if not 0 < delta < 1:
        raise InputError(f"delta is {delta}: it is a probability between 0 and 1.")
    complexity = (
        natarajan * (math.log(2 * n) + 2 * math.log(n_classes)) - math.log(delta) + math.log(2)
    )
    return 4 / ((math.log(2) - math.log1p(ambiguity)) * n) * complexity
