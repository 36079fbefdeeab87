"""The bound command: Proposition 1 for given numbers, or for those of a run beside its measured distance."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from ltpll.cli.console import console
from ltpll.errors import InputError

Option = typer.Option


def bound(
    natarajan: Annotated[float, Option(help="Natarajan dimension of the classifiers; for linear ones about features × classes.")],
    n: Annotated[int | None, Option("--n", help="Training examples.", show_default=False)] = None,
    classes: Annotated[int | None, Option(help="Classes.", show_default=False)] = None,
    eta: Annotated[float | None, Option(help="Ambiguity degree, below 1.", show_default=False)] = None,
    delta: Annotated[float, Option(help="Probability that the bound fails.")] = 0.05,
    run: Annotated[Path | None, Option("--from", help="A finished run's folder that gives what is not given.", show_default=False)] = None,
    data_root: Annotated[Path | None, Option(help="Where prepared data lie; default $LTPLL_DATA.", show_default=False)] = None,
) -> None:
    """How far the class distribution of the best classifier on disambiguated labels can be from the true one (L2)."""
    from ltpll.analysis.bound import ambiguity_degree, prior_bound
    from ltpll.experiments.benchmark import redraw_candidates
    from ltpll.runs.run import read_result

    measured = None
    if run is not None:
        record = read_result(run)
        counts, last = record.get("class_counts"), record.get("last")
        if not isinstance(counts, list) or not counts or not all(type(count) is int for count in counts) or not isinstance(last, dict):
            raise InputError(f"The record of {run} does not say how many examples each class has: give --n, --classes and --eta instead.")
        n, classes = n or sum(counts), classes or len(counts)
        measured = last["prior_distance"] if isinstance(last.get("prior_distance"), float) else None
        if eta is None:
            drawn = redraw_candidates(record["config"], data_root)
            eta = ambiguity_degree(drawn.candidates, drawn.labels)
    if n is None or classes is None or eta is None:
        raise InputError("The bound needs --n, --classes and --eta, or a run that gives them: --from RUN.")
    value = prior_bound(n, classes, natarajan, eta, delta)
    console.print(f"N = {n:,}, C = {classes}, ambiguity degree {eta:.4g}, dimension {natarajan:g}: the L2 distance is below {value:.4g}")
    console.print(f"with probability {1 - delta:g}" + (" (it can never exceed 1.414: this says nothing)." if value > math.sqrt(2) else "."))
    if measured is not None:
        console.print(f"Measured at the run's last epoch, for its estimated prior: {measured:.4g}.")
