"""Studies: small experiments that run on any machine, behind the commands demo and toy."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ltpll.processes import in_processes
from ltpll.runs.run import Run


def run_missing(
    runs: Sequence[Run],
    train: Callable[[Run], None],
    workers: int | None,
    on_progress: Callable[[int], None] = lambda epochs: None,
) -> None:
    """Train every run that is not done, in `workers` processes with one thread each.

    None means one per core, and 0 this process. `on_progress` is called several times per second
    with the number of epochs that all runs together have finished. The first error stops all runs.
    Finished runs are kept, so calling this again trains only the others.
    """
    missing = [run for run in runs if not run.done]

    def report() -> None:
        on_progress(sum(run.epochs_logged() for run in runs))

    report()
    if workers == 0:
        for run in missing:
            train(run)
            report()
    elif missing:
        workers = min(workers or os.cpu_count() or 1, len(missing))
        in_processes(train, [(run,) for run in missing], workers, report)
