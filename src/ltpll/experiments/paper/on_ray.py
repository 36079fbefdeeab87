"""Launching on Ray: every missing run of a grid is a task with a share of a GPU, on one machine or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ltpll.errors import InputError, required_by
from ltpll.experiments.benchmark import Experiment
from ltpll.experiments.paper.launch import Outcome, launch_one

RETRIES = 3  # of a run whose machine or process died; it goes on from its checkpoint
SECONDS = 0.5  # between two looks at what is finished


def launch_on_ray(
    wanted: Sequence[Experiment],
    root: Path,
    *,
    data_root: Path | None,
    device: str,
    per_gpu: int = 1,
    address: str | None = None,
    measure_every: int = 10,
    on_wait: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Train every run that is not finished; `root` and the data must be reachable under the same path on every machine.

    Without an address, a cluster that this machine belongs to is used, or else a Ray of its own is started and ended here.
    """
    with required_by("The launcher ray", install="'ltpll[ray]'"):
        import ray  # type: ignore[import-not-found]
    ours = not ray.is_initialized()
    try:
        ray.init(address=address, ignore_reinit_error=True, include_dashboard=False, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = (str(error).splitlines() or ["no answer"])[0]
        raise InputError(f"Ray cannot be reached at {address or 'this machine'} ({reason}): look at `ray status`.") from None
    try:
        return _run_all(ray, wanted, root.resolve(), data_root, device, per_gpu, measure_every, on_wait)
    finally:
        if ours:
            ray.shutdown()


def _run_all(
    ray: Any,
    wanted: Sequence[Experiment],
    root: Path,
    data_root: Path | None,
    device: str,
    per_gpu: int,
    measure_every: int,
    on_wait: Callable[[], None],
) -> list[Outcome]:
    on_gpu = device.startswith("cuda")
    if on_gpu and not ray.cluster_resources().get("GPU"):
        raise InputError("Ray knows of no GPU: start it where there are some, or train with --device cpu.")
    task = ray.remote(_launch_with_one_thread).options(num_cpus=1, num_gpus=1 / per_gpu if on_gpu else 0, max_retries=RETRIES)
    # Inside a task Ray shows the GPU that it was given, alone.
    waiting = {task.remote(one, root, data_root, "cuda" if on_gpu else device, measure_every): one for one in wanted}
    outcomes: list[Outcome] = []
    try:
        while waiting:
            finished, _ = ray.wait(list(waiting), num_returns=1, timeout=SECONDS)
            for reference in finished:
                outcomes += _outcome(ray, reference, waiting.pop(reference), root)
            on_wait()
    except BaseException:
        for reference in waiting:
            ray.cancel(reference, force=True)
        raise
    return outcomes


def _outcome(ray: Any, reference: Any, experiment: Experiment, root: Path) -> list[Outcome]:
    from ltpll.experiments.benchmark import experiment_run

    try:
        found: list[Outcome] = ray.get(reference)
        return found
    except ray.exceptions.RayError as error:  # the process died once more than it was started again
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return [Outcome(experiment, experiment_run(root, experiment), f"the process on Ray died: {reason}")]


def _launch_with_one_thread(experiment: Experiment, root: Path, data_root: Path | None, device: str, measure_every: int) -> list[Outcome]:
    import torch

    torch.set_num_threads(1)  # as the local launcher's processes, so that results are the same
    return launch_one(experiment, root, data_root, device, measure_every)
