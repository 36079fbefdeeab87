"""The bound of Proposition 1 of the RECORDS paper: how far the learned class distribution can be from the true one."""

from __future__ import annotations

import math

import numpy as np

from ltpll.candidates import Candidates
from ltpll.errors import InputError


def prior_bound(n: int, n_classes: int, natarajan: float, ambiguity: float, delta: float) -> float:
    """4 / ((ln 2 − ln(1 + η)) N) · (d (ln 2N + 2 ln C) − ln δ + ln 2), which the L2 distance exceeds with probability δ at most.

    η is the ambiguity degree, the largest probability that a wrong label joins a set; d the Natarajan dimension of the classifiers.
    Class distributions are never further apart than √2, so a larger bound says nothing.
    """
    if n < 1 or n_classes < 2 or natarajan <= 0:
        raise InputError(f"The bound needs examples, at least two classes and a positive dimension, not {n}, {n_classes} and {natarajan}.")
    if not 0 <= ambiguity < 1:
        raise InputError(f"The ambiguity degree is {ambiguity}: the bound needs it to lie below 1, and not below 0.")
    if not 0 < delta < 1:
        raise InputError(f"delta is {delta}: it is a probability between 0 and 1.")
    complexity = natarajan * (math.log(2 * n) + 2 * math.log(n_classes)) - math.log(delta) + math.log(2)
    return 4 / ((math.log(2) - math.log1p(ambiguity)) * n) * complexity


def ambiguity_degree(candidates: Candidates, labels: list[int]) -> float:
    """The largest share of one class's examples whose sets hold one and the same wrong label.

    An estimate from above: in a class of few examples some label is in all of their sets by chance.
    """
    n_classes = candidates.n_classes
    sizes = np.bincount(labels, minlength=n_classes)
    true = np.repeat(np.asarray(labels, dtype=np.int64), candidates.sizes.cpu().numpy())
    # By pairs that occur, which are far fewer than all where there are many classes.
    pairs, counts = np.unique(true * n_classes + candidates.labels.cpu().numpy(), return_counts=True)
    true, other = np.divmod(pairs, n_classes)
    shares = (counts / sizes[true])[true != other]
    return float(shares.max(initial=0.0))
