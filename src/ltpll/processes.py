"""Workers: one function called with many arguments in several processes, which end with the one that started them."""

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
PRELOADED = ["torch", "torch._dynamo", "ltpll.training.trainer"]  # what takes seconds to import, once for all processes


def in_processes(
    function: Callable[..., T], arguments: Sequence[tuple[Any, ...]], workers: int, on_wait: Callable[[], None] = lambda: None
) -> list[T]:
    """The results in the order in which they came; `on_wait` is called several times a second.

    The first error, an interrupt or SIGTERM ends all of it: calls under way are ended too, and waited for.
    """
    others = set(multiprocessing.active_children())
    results = []
    # Not forked from this process, since CUDA does not survive that, but from a server that has imported torch and done nothing else.
    # One thread a process: two processes with two threads each on two cores wait for each other more than they compute.
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn")
    context.set_forkserver_preload(PRELOADED)  # without effect where there is no such server
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
            # The pool takes the end of its processes for its own end, and leaving the block waits for its thread. shutdown(wait=False)
            # would forget that thread, which could then close its pipe while the interpreter's exit writes into it; a future
            # cancelled here would be one on which the thread stumbles.
            children = set(multiprocessing.active_children()) - others
            for process in children:
                process.terminate()
            for process in children:
                process.join()  # a training finishes its step first, and writes a checkpoint
            raise
    return results


def _start_worker() -> None:
    import torch

    # An interrupt reaches the whole process group; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A parent that was killed cannot end its processes, and the next one may train the same.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # the parent has shown what there is to say
    warnings.simplefilter("default", CheckpointWarning)  # but for what only shows here


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
