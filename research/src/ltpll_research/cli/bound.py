"""The bound command: Proposition 1 of the RECORDS paper for given numbers."""

from __future__ import annotations

import math
from typing import Annotated

from ltpll.cli.console import print_line
from ltpll_research.cli.options import data_option


def bound(
    natarajan: Annotated[
        float,
        data_option(
            min=1e-9,
            help="Natarajan dimension of the classifiers; for linear classifiers about features × "
            "classes.",
        ),
    ],
    n: Annotated[int, data_option("--n", min=1, help="Number of training examples.")],
    classes: Annotated[int, data_option(min=2, help="Number of classes.")],
    eta: Annotated[float, data_option(min=0, max=1 - 1e-9, help="Ambiguity degree, below 1.")],
    delta: Annotated[
        float, data_option(min=1e-9, max=1, help="Probability that the bound fails.")
    ] = 0.05,
) -> None:
    """Bound the L2 distance between the true class prior and that of the best classifier."""
    value = prior_bound(n, classes, natarajan, eta, delta)
    # Class distributions are never further apart than √2.
    vacuous = " (vacuous: it never exceeds 1.414)" if value > math.sqrt(2) else ""
    print_line(f"With probability {1 - delta:g}, the L2 distance is below {value:.4g}{vacuous}.")


def prior_bound(n: int, n_classes: int, natarajan: float, ambiguity: float, delta: float) -> float:
    """4 / ((ln 2 − ln(1 + η)) N) · (d (ln 2N + 2 ln C) − ln δ + ln 2).

    Examples:
        >>> round(prior_bound(1_000_000, 10, natarajan=100, ambiguity=0.5, delta=0.05), 3)
        0.027
    """
    complexity = (
        natarajan * (math.log(2 * n) + 2 * math.log(n_classes)) - math.log(delta) + math.log(2)
    )
    return 4 / ((math.log(2) - math.log1p(ambiguity)) * n) * complexity
