"""Studies: lists of small runs, trained side by side in processes, each finished run kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ltpll.processes import in_processes
from ltpll.runs.run import Run

Train = Callable[[Run], None]


def run_missing(runs: Sequence[Run], train: Train, *, workers: int | None = None, on_progress: Callable[[int], None] | None = None) -> None:
    """Train every run that is not done, in `workers` processes of one thread each (None: one per core; 0: in this process).

    `on_progress` is told several times a second how many epochs all runs together have behind them.
    The first error ends it; what is finished stays finished, so the same call goes on from there.
    """
    missing = [run for run in runs if not run.done]

    def report() -> None:
        if on_progress:
            on_progress(sum(run.epochs_logged() for run in runs))

    report()
    if workers == 0:
        for run in missing:
            train(run)
            report()
        return
    if not missing:
        return
    # A run that is not done is started again by the next call, so that nothing is lost when this one ends early.
    in_processes(train, [(run,) for run in missing], min(workers or os.cpu_count() or 1, len(missing)), report)
