"""Processes: calls of one function in several worker processes, which end when their parent does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

from ltpll.errors import CheckpointWarning

T = TypeVar("T")
PRELOADED = ["torch", "torch._dynamo", "ltpll.training.trainer"]  # slow imports, done once for all processes


def in_processes(
    function: Callable[..., T], arguments: Sequence[tuple[Any, ...]], workers: int, on_wait: Callable[[], None] = lambda: None
) -> list[T]:
    """Call a function with each tuple of arguments, and return the results in order of completion.

    `on_wait` is called several times per second. The first error, an interrupt or SIGTERM terminates all processes and waits for them.
    """
    others = set(multiprocessing.active_children())
    results = []
    # CUDA does not survive a fork of this process, so processes are forked from a server that has only imported torch.
    # One thread per process, since more threads than cores mostly wait for each other.
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn")
    context.set_forkserver_preload(PRELOADED)  # has no effect without such a server
    with _one_thread_each(), ProcessPoolExecutor(workers, context, _start_worker) as pool:
        waiting: set[Future[T]] = set()
        try:
            for given in arguments:
                waiting.add(pool.submit(function, *given))
            while waiting:
                finished, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                results += [future.result() for future in finished]
                on_wait()
        except BaseException:
            # Terminating its processes breaks the pool, and leaving the block joins its thread. After shutdown(wait=False), that thread
            # could close its pipe while the interpreter's exit writes to it, and it would fail on a future cancelled here.
            children = set(multiprocessing.active_children()) - others
            for process in children:
                process.terminate()
            for process in children:
                process.join()  # training finishes its step and writes a checkpoint first
            raise
    return results


def _start_worker() -> None:
    import torch

    # An interrupt reaches the whole process group; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A parent that is killed cannot terminate its processes, and another one may start the same training.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # the parent has already shown them
    warnings.simplefilter("default", CheckpointWarning)  # this one is raised only here


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


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
