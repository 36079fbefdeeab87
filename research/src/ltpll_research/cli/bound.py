"""The bound command: Proposition 1 of the RECORDS paper for given numbers, or for a run beside its measured distance."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

from ltpll.cli.console import print_line
from ltpll.cli.options import data_option
from ltpll.errors import InputError
from ltpll_research.cli.options import DataRoot


def bound(
    natarajan: Annotated[
        float,
        data_option(
            help="Natarajan dimension of the classifiers; for linear classifiers about features × classes."
        ),
    ],
    n: Annotated[int | None, data_option("--n", help="Number of training examples.")] = None,
    classes: Annotated[int | None, data_option(help="Number of classes.")] = None,
    eta: Annotated[float | None, data_option(help="Ambiguity degree, below 1.")] = None,
    delta: Annotated[float, data_option(help="Probability that the bound fails.")] = 0.05,
    run: Annotated[
        Path | None,
        data_option(
            "--from",
            help="Finished run that supplies --n, --classes and --eta where they are not given.",
        ),
    ] = None,
    data_root: DataRoot = None,
) -> None:
    """Bound the L2 distance between the true class prior and that of the best classifier on disambiguated labels."""
    from ltpll_research.bound import prior_bound
    from ltpll_research.run_ambiguity import ambiguity_of_run

    measured = None
    if run is not None:
        found = ambiguity_of_run(run, data_root, degree=eta)
        n, classes, eta, measured = (
            n or found.n,
            classes or found.n_classes,
            found.degree,
            found.prior_distance,
        )
    if n is None or classes is None or eta is None:
        raise InputError(
            "The bound needs --n, --classes and --eta, or a run that supplies them: --from RUN."
        )
    value = prior_bound(n, classes, natarajan, eta, delta)
    print_line(
        f"{n:,} examples, {classes} classes, ambiguity degree {eta:.4g}, Natarajan dimension {natarajan:g}."
    )
    vacuous = " (vacuous: it never exceeds 1.414)" if value > math.sqrt(2) else ""
    print_line(f"With probability {1 - delta:g}, the L2 distance is below {value:.4g}{vacuous}.")
    if measured is not None:
        print_line(
            f"Measured for the prior that the run estimated at its last epoch: {measured:.4g}."
        )
