"""Known: the class prior that a user states, as shares or as bounds of shares."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ltpll.candidates import Candidates
from ltpll.errors import InputError, shown
from ltpll.priors.estimate import PriorEstimate, estimate_prior


def known_prior(candidates: Candidates, shares: Any) -> PriorEstimate:
    """The class prior that a user knows, in place of the one that the candidate sets imply.

    Args:
        candidates: The candidate sets.
        shares: The share or count of each class in the order of `candidates.classes`, or a mapping
            from every class to its share or count, or to a pair of a lower and an upper bound of
            its share.

    Returns:
        The given shares as an estimate, with the evidence of the sets.

    Raises:
        InputError: A class is missing or unknown, or a share is not possible.

    Examples:
        >>> known_prior(Candidates.of(["cat|dog", "cat"]), {"cat": 3, "dog": 1}).estimate
        array([0.75, 0.25])
    """
    names = [str(name) for name in candidates.classes]
    if isinstance(shares, Mapping):
        by_name = {str(name): entry for name, entry in shares.items()}
        differing = sorted(set(names) ^ set(by_name))
        if differing:
            problem = "has no share" if differing[0] in names else "is not a class of these sets"
            which = f"{shown(differing[0])} {problem}"
            raise InputError(f"{which}: give the share of every class, and of no other.")
        entries = [by_name[name] for name in names]
    else:
        entries = list(shares if isinstance(shares, Sequence) else np.asarray(shares).tolist())
    if len(entries) != len(names):
        raise InputError(
            f"There are {len(entries)} class shares for {len(names)} classes: give one per class."
        )
    bounds = np.asarray([_bounds_of_share(*one) for one in zip(names, entries, strict=True)])
    lower, upper = bounds[:, 0], bounds[:, 1]
    if (lower == upper).all():
        total = lower.sum()
        if total <= 0:
            raise InputError("All class shares are zero: give the share of each class.")
        lower = upper = estimate = lower / total
    else:
        if lower.sum() > 1 + 1e-6 or upper.sum() < 1 - 1e-6:
            sums = f"{lower.sum():.3g} and the upper bounds to {upper.sum():.3g}"
            which = f"The lower bounds of the class shares sum to {sums}"
            raise InputError(f"{which}: shares that sum to 1 must fit between them.")
        # The point between the bounds whose shares sum to one.
        part = (1 - lower.sum()) / max((upper - lower).sum(), 1e-12)
        estimate = lower + part * (upper - lower)
    found = estimate_prior(candidates)
    return replace(
        found,
        estimate=estimate,
        lower=lower,
        upper=upper,
        deviation=(upper - lower) / (2 * found.width),
        how="given",
        because="the class shares were given",
    )


def _bounds_of_share(name: str, entry: Any) -> tuple[float, float]:
    pair = tuple(entry) if isinstance(entry, (list, tuple)) else (entry, entry)
    numbers = len(pair) == 2 and all(
        isinstance(value, (int, float)) and math.isfinite(value) and value >= 0 for value in pair
    )
    if not numbers or pair[0] > pair[1]:
        which = f"The share of class {shown(name)} is {shown(entry)}"
        raise InputError(f"{which}: give a number of at least 0, or a lower and an upper bound.")
    return float(pair[0]), float(pair[1])
