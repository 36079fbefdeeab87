"""Running a study: train what is missing, side by side on the machine's cores, and leave a record of each run."""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager

import torch

from ltpll.runs import Run

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
    workers = min(workers or os.cpu_count() or 1, len(missing))
    others = set(multiprocessing.active_children())
    # One thread a process: two processes with two threads each on two cores wait for each other more than they compute.
    with _one_thread_each(), ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker) as pool:
        waiting = {pool.submit(train, run) for run in missing}
        try:
            while waiting:
                finished, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                for future in finished:
                    future.result()
                report()
        except BaseException:
            # Runs under way are ended too: a run that is not done is started again by the next call, so nothing is lost.
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise


def _start_worker() -> None:
    # An interrupt reaches the whole process group; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # the parent has shown what there is to say


@contextmanager
def _one_thread_each() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY")}
    os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
