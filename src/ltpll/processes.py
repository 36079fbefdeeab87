"""Processes: calls of a function in several worker processes, which end with their parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import forkserver
from typing import Any, TypeVar

from ltpll.errors import CheckpointWarning, InputError, InputWarning

T = TypeVar("T")
# At most, counting processes too; the pool has two threads and two processes of its own.
THREADS_OF_POOL, THREADS_OF_WORKER = 4, 3
# Slow imports, done once for all processes.
PRELOADED = ["torch", "torch._dynamo", "ltpll.training.trainer"]


def in_processes(
    function: Callable[..., T],
    arguments: Sequence[tuple[Any, ...]],
    workers: int,
    on_wait: Callable[[], None] = lambda: None,
) -> list[T]:
    """Call a function with each tuple of arguments, and return the results in order of completion.

    `on_wait` is called several times per second. The first error, an interrupt, SIGTERM or SIGHUP
    terminates all processes and waits for them. Where a limit allows no further processes, a
    warning says so, and the function is called in this one.

    Raises:
        InputError: A process was killed, and not by this one.
    """
    others = set(multiprocessing.active_children())
    results: list[T] = []
    # CUDA does not survive a fork of this process, so processes are forked from a server that has
    # only imported torch.
    has_server = "forkserver" in multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if has_server else "spawn")
    context.set_forkserver_preload(PRELOADED)  # has no effect without such a server
    if not _can_start(context, workers):
        message = "No further processes can be started here: this one does their work in turn."
        warnings.warn(message, InputWarning, stacklevel=2)
        for given in arguments:
            results.append(function(*given))
            on_wait()
        return results
    with _one_thread_each(), ProcessPoolExecutor(workers, context, _start_worker) as pool:
        waiting: set[Future[T]] = set()
        try:
            for given in arguments:
                waiting.add(pool.submit(function, *given))
            while waiting:
                finished, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                results += [future.result() for future in finished]
                on_wait()
        except BaseException as error:
            # Terminating its processes breaks the pool, and leaving the block joins its thread.
            # After shutdown(wait=False), that thread could close its pipe while the interpreter's
            # exit writes to it, and it would fail on a future cancelled here.
            children = set(multiprocessing.active_children()) - others
            for process in children:
                process.terminate()
            for process in children:
                process.join()  # training finishes its step and writes a checkpoint first
            if isinstance(error, BrokenProcessPool):
                problem = "A training process was killed, often because memory ran out"
                raise InputError(f"{problem}: rerun the command with fewer workers.") from error
            raise
    return results


def _can_start(context: Any, workers: int) -> bool:
    """Whether the system allows so many workers, which would hang if a limit were met halfway.

    The server from which they are forked is started here. It and they ignore SIGHUP, which reaches
    the whole process group; only this process handles it, as it does interrupts.
    """
    release, threads = threading.Event(), []
    main = threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGHUP")
    hangup = signal.signal(signal.SIGHUP, signal.SIG_IGN) if main else None
    try:
        # Limits count threads as processes.
        for _ in range(THREADS_OF_POOL + THREADS_OF_WORKER * workers):
            thread = threading.Thread(target=release.wait)
            thread.start()
            threads.append(thread)
        if context.get_start_method() == "forkserver":
            forkserver.ensure_running()
    except (OSError, RuntimeError):
        return False
    finally:
        release.set()
        for thread in threads:
            thread.join()
        if main:
            signal.signal(signal.SIGHUP, hangup)
    return True


def _start_worker() -> None:
    import torch

    # An interrupt reaches the whole process group; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A parent that is killed cannot terminate its processes, and another one may start the same
    # training.
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
    """More threads than cores mostly wait for each other."""
    changed = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    before = {name: os.environ[name] for name in changed if name in os.environ}
    os.environ |= changed
    try:
        yield
    finally:
        for name in changed:
            del os.environ[name]
        os.environ |= before
