"""Launches the missing runs of a grid on Ray, each as a task with a share of a GPU, on one machine or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ltpll.errors import InputError, required_by
from ltpll_research.benchmark import Experiment, experiment_run
from ltpll_research.paper.launch import Outcome, launch_one

RETRIES = 3  # if the machine or process of a run dies; the run resumes from its checkpoint
POLL_SECONDS = 0.5


def launch_on_ray(
    wanted: Sequence[Experiment],
    root: Path,
    *,
    data_root: Path | None,
    device: str,
    per_gpu: int = 1,
    address: str | None = None,
    measure_every: int = 1,
    on_wait: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Train every run that is not finished; `root` and the data must have the same path on every machine.

    Without an address, Ray uses the cluster that this machine belongs to, or starts a local one that ends with this call.
    """
    with required_by("The launcher ray", install="'ltpll-research[ray]'"):
        import ray
    started_here = not ray.is_initialized()
    try:
        ray.init(
            address=address,
            ignore_reinit_error=True,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = (str(error).splitlines() or ["no answer"])[0]
        raise InputError(
            f"Ray cannot be reached at {address or 'this machine'} ({reason}): see `ray status`."
        ) from None
    root, on_gpu = root.resolve(), device.startswith("cuda")
    outcomes: list[Outcome] = []
    waiting: dict[Any, Experiment] = {}
    try:
        if on_gpu and not ray.cluster_resources().get("GPU"):
            raise InputError(
                "Ray has no GPU: start it on machines that have one, or train with --device cpu."
            )
        task = ray.remote(_launch_with_one_thread).options(
            num_cpus=1, num_gpus=1 / per_gpu if on_gpu else 0, max_retries=RETRIES
        )
        # A task sees only the GPU that Ray assigned to it.
        place = "cuda" if on_gpu else device
        waiting = {
            task.remote(experiment, root, data_root, place, measure_every): experiment
            for experiment in wanted
        }
        while waiting:
            finished, _ = ray.wait(list(waiting), num_returns=1, timeout=POLL_SECONDS)
            for reference in finished:
                outcomes += _outcome(ray, reference, waiting.pop(reference), root)
            on_wait()
        return outcomes
    finally:
        for reference in waiting:  # empty unless interrupted
            ray.cancel(reference, force=True)
        if started_here:
            ray.shutdown()


def _outcome(ray: Any, reference: Any, experiment: Experiment, root: Path) -> list[Outcome]:
    try:
        found: list[Outcome] = ray.get(reference)
        return found
    except ray.exceptions.RayError as error:  # the process died more often than it is retried
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return [
            Outcome(
                experiment, experiment_run(root, experiment), f"the process on Ray died: {reason}"
            )
        ]


def _launch_with_one_thread(
    experiment: Experiment, root: Path, data_root: Path | None, device: str, measure_every: int
) -> list[Outcome]:
    import torch

    torch.set_num_threads(1)  # like the processes of the local launcher, so that results are equal
    return launch_one(experiment, root, data_root, device, measure_every)
