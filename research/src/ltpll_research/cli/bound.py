"""The bound command: Proposition 1 of the RECORDS paper for given numbers."""

from __future__ import annotations

import math
from typing import Annotated

from ltpll.cli.console import print_line
from ltpll_research.bound import prior_bound
from ltpll_research.cli.options import data_option


def bound(
    natarajan: Annotated[
        float,
        data_option(
            help="Natarajan dimension of the classifiers; for linear classifiers about features × "
            "classes."
        ),
    ],
    n: Annotated[int, data_option("--n", help="Number of training examples.")],
    classes: Annotated[int, data_option(help="Number of classes.")],
    eta: Annotated[float, data_option(help="Ambiguity degree, below 1.")],
    delta: Annotated[float, data_option(help="Probability that the bound fails.")] = 0.05,
) -> None:
    """Bound the L2 distance between the true class prior and that of the best classifier."""
    value = prior_bound(n, classes, natarajan, eta, delta)
    vacuous = " (vacuous: it never exceeds 1.414)" if value > math.sqrt(2) else ""
    print_line(f"With probability {1 - delta:g}, the L2 distance is below {value:.4g}{vacuous}.")
