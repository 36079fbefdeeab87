"""Measures training speed: views per second, the time of each part of a step, share of the peak."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from ltpll.evaluation.during_training import Evaluate
from ltpll.interfaces import Outputs
from ltpll.runs.environment import environment
from ltpll.runs.run import Record
from ltpll.training.trainer import PartialLabelTrainer
from ltpll_research.benchmark import Experiment, Problem, build_trainer, draw_problem
from ltpll_research.image_sets.prepared import ImageSet


def noise_images(n_per_class: int, n_classes: int, n_test: int, side: int = 32) -> ImageSet:
    """Noise in the shape of CIFAR; speed does not depend on the content of images."""
    rng = np.random.default_rng(0)
    y, y_test = np.repeat(np.arange(n_classes), n_per_class), np.arange(n_test) % n_classes
    x, x_test = (rng.integers(0, 256, (n, side, side, 3), dtype=np.uint8) for n in (len(y), n_test))
    return ImageSet("noise", x, y, x_test, y_test, tuple(map(str, range(n_classes))))


def bench_engine(
    experiment: Experiment,
    *,
    device: str,
    engine: str,
    images: ImageSet,
    epochs: int,
    measure_every: int,
) -> Record:
    """Measure everything that `ltpll-research bench engine` shows."""
    problem = draw_problem(experiment, images)
    speeds = {}
    for rebalancer in ("none", experiment.rebalancer):
        measured = replace(experiment, rebalancer=rebalancer)
        trainer = build_trainer(measured, problem, device=device, engine=engine)
        speeds[rebalancer] = end_to_end_speed(trainer, problem, epochs, measure_every)
    bare, speed = speeds["none"], speeds[experiment.rebalancer]
    parts = _parts(trainer, problem)
    # The backward pass does the work twice: for inputs and for weights.
    flops = 3 * _forward_flops(trainer, problem)
    peak = _matrix_peak(trainer)
    memory = None
    if trainer.device.type == "cuda":
        memory = torch.cuda.max_memory_allocated(trainer.device) / 2**30
    return {
        "experiment": experiment.config(),
        "environment": environment(str(trainer.device)),
        "engine": trainer.engine,
        "views_per_second": speed["views_per_second"],
        "training_views_per_second": speed["training_views_per_second"],
        "views_per_second_without_rebalancer": bare["views_per_second"],
        "rebalancer_cost": bare["views_per_second"] / speed["views_per_second"] - 1,
        "start_seconds": bare["start_seconds"],  # by the second measurement, all is compiled
        "epochs_timed": epochs,
        "measure_every": measure_every,
        "milliseconds_per_step": parts,
        "flops_per_view": flops,
        "matrix_peak_tflops": peak / 1e12,
        "share_of_matrix_peak": flops * speed["views_per_second"] / peak,
        "peak_memory_gib": memory,
    }


def end_to_end_speed(
    trainer: PartialLabelTrainer, problem: Problem, epochs: int, measure_every: int
) -> Record:
    """Measure whole epochs with and without evaluation.

    Steps are compiled, and CUDA graphs recorded, in a warm-up.
    """
    trainer.prepare(problem.x, problem.candidates)
    truth = Evaluate(problem.x_test, problem.y_test, problem.y)
    truth.on_train_begin(trainer)
    started = time.perf_counter()
    for _ in range(3):  # steps of the warm-up epoch differ from those of later epochs
        trainer.train_epoch()
    truth.measure(trainer)
    _synchronize(trainer.device)
    start = time.perf_counter() - started
    passes, trained = [], []
    for _ in range(3):
        started, evaluating = time.perf_counter(), 0.0
        for epoch in range(epochs):
            trainer.train_epoch()
            if (epoch + 1) % measure_every == 0:
                before = time.perf_counter()
                truth.measure(trainer)  # waits for the device, as the end of an epoch does
                evaluating += time.perf_counter() - before
        _synchronize(trainer.device)
        passes.append(time.perf_counter() - started)
        trained.append(passes[-1] - evaluating)
    views = trainer.views_per_epoch * epochs
    return {
        "views_per_second": views / statistics.median(passes),
        "training_views_per_second": views / statistics.median(trained),
        "start_seconds": start,
    }


def _parts(trainer: PartialLabelTrainer, problem: Problem) -> dict[str, float]:
    """Milliseconds of each part of a step, run eagerly and separately.

    Inside a replayed CUDA graph, parts cannot be timed.
    """
    rows = torch.arange(min(trainer.chunk, len(problem.y)), device=trainer.device)
    size = min(trainer.batch_size, len(rows))
    views = trainer.draw(rows)
    index, batch = rows[:size], tuple(view[:size] for view in views)
    joined = torch.cat(batch)
    candidates, targets = trainer.candidates[index], trainer.targets[index]
    trainer.model.train()

    def forward() -> Any:
        return trainer.forward_pass(joined)

    def forward_backward() -> None:
        logits, features = forward()
        trainer.optimizer.zero_grad(set_to_none=True)
        (logits.sum() + features.sum()).backward()
        trainer.forward_pass.finish_gradients()

    def refine() -> None:
        outputs = trainer_outputs.detach()
        trainer.rebalancer.observe(outputs, trainer.head)
        adjusted = trainer.rebalancer.adjust(outputs, "targets", trainer.head)
        trainer.targets[index] = trainer.method.disambiguate(adjusted, targets, candidates)

    milliseconds = partial(time_milliseconds, trainer)
    with torch.no_grad():
        logits, features = forward()
        trainer_outputs = Outputs(logits.split(size), features.split(size))
    drawing = milliseconds(lambda: trainer.draw(rows))
    both, forward_only = milliseconds(forward_backward), milliseconds(forward)
    with torch.no_grad():
        refining = milliseconds(refine)
        losing = milliseconds(lambda: trainer.method.loss(trainer_outputs, targets, candidates))
    parts = {
        "views": drawing * size / len(rows),
        "forward": forward_only,
        "backward": both - forward_only,
        "loss": losing,
        "rebalancer and targets": refining,
        "optimizer": milliseconds(trainer.optimizer.step),
        "evaluation of the test set": milliseconds(lambda: trainer.outputs(problem.x_test), 3),
    }
    if trainer.engine != "eager":
        for _ in range(5):
            trainer._runner.step(index, batch)
        parts["whole step, replayed"] = milliseconds(lambda: trainer._runner.step(index, batch))
    return parts


def time_milliseconds(
    trainer: PartialLabelTrainer, work: Callable[[], Any], repeats: int = 10
) -> float:
    """The median time of one call to `work` on the trainer's device, after a warm-up."""
    for _ in range(3):
        work()
    times = []
    for _ in range(3):
        _synchronize(trainer.device)
        started = time.perf_counter()
        for _ in range(repeats):
            work()
        _synchronize(trainer.device)
        times.append((time.perf_counter() - started) / repeats * 1000)
    return statistics.median(times)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _forward_flops(trainer: PartialLabelTrainer, problem: Problem) -> int:
    image = trainer.views.plain(problem.x_test[:1].to(trainer.device))
    trainer.model.eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        trainer.model(image.float())
    return int(counter.get_total_flops())


def _matrix_peak(trainer: PartialLabelTrainer) -> float:
    """Operations per second of a large matrix product: what the device reaches in practice."""
    on_cuda = trainer.device.type == "cuda"
    n, dtype = (8192, torch.bfloat16) if on_cuda else (1024, torch.float32)
    a, b = (torch.randn(n, n, device=trainer.device, dtype=dtype) for _ in range(2))
    return 2 * n**3 / (time_milliseconds(trainer, lambda: a @ b) / 1000)
