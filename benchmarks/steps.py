"""Measures the effect of each optimisation on a GPU, from eager float32 to the complete engine.

    python benchmarks/steps.py --out results/bench/steps-h200.json

Each line adds one optimisation to the previous one; the lines after the complete engine each change
one thing about it.
"""

from __future__ import annotations

import argparse
import json
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ltpll.runs.environment import environment
from ltpll.training.trainer import PartialLabelTrainer
from ltpll_research.benchmark import Experiment, build_trainer, draw_problem
from ltpll_research.engine_speed import end_to_end_speed, noise_images, time_milliseconds

KERNELS = {
    "batch norm": "ltpll.models.norm",
    "convolutions": "ltpll.models.resnet",
    "views": "ltpll.views.images",
}


@dataclass(frozen=True)
class Variant:
    what: str
    precision: str = "bfloat16"
    engine: str = "captured"
    kernels: tuple[str, ...] = tuple(KERNELS)
    low_weights: bool = True
    cudnn: dict[str, Any] | None = None
    change: Callable[[PartialLabelTrainer], None] | None = None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--epochs",
        type=int,
        default=10,
        help="epochs per timed pass; there are three passes, each with an evaluation",
    )
    parser.add_argument("--only", nargs="*", type=int, help="numbers of the lines to measure")
    parser.add_argument(
        "--profile",
        type=Path,
        help="text file for a profile of the kernels in a replayed step of the last line",
    )
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("error: no CUDA device was found.")
    rows = []
    for number, variant in enumerate(VARIANTS):
        if options.only is None or number in options.only:
            row, trainer = measure(variant, options.epochs)
            rows.append(row)
            print(f"{number:3d} {variant.what:72s} {row['views_per_second']:9,.0f} views/s, "
                f"start {row['start_seconds']:.1f} s, "
                  f"step {row['step_milliseconds'] or 0:.3f} ms", flush=True)  # fmt: skip
            if options.out:
                options.out.parent.mkdir(parents=True, exist_ok=True)
                record = {
                    "environment": environment("cuda"),
                    "epochs_timed": options.epochs,
                    "passes": 3,
                    "variants": rows,
                }
                options.out.write_text(json.dumps(record, indent=1) + "\n")
    if options.profile:
        profile(trainer, options.profile)


def measure(variant: Variant, epochs: int) -> tuple[dict[str, Any], PartialLabelTrainer]:
    experiment = Experiment("noise", precision=variant.precision)
    problem = draw_problem(experiment, noise_images(500, 100, 10_000))
    with settings(variant):
        trainer = build_trainer(experiment, problem, device="cuda", engine=variant.engine)
        if not variant.low_weights and variant.engine == "captured":
            trainer.forward_pass.network = trainer.model
        if variant.change:
            variant.change(trainer)
        speed = end_to_end_speed(trainer, problem, epochs, measure_every=epochs)
        step = None
        if trainer.engine != "eager":
            held = list(trainer._runner.graphed_step.recordings.values())[-1]
            step = time_milliseconds(trainer, held.graph.replay, repeats=30)
    return {"what": variant.what, **speed, "step_milliseconds": step}, trainer


@contextmanager
def settings(variant: Variant) -> Iterator[None]:
    """Enable the kernels and cuDNN settings of a variant, and restore the settings afterwards."""
    before = {name: getattr(torch.backends.cudnn, name) for name in variant.cudnn or {}}
    torch._dynamo.reset()
    with ExitStack() as stack:
        for name, module in KERNELS.items():
            if name not in variant.kernels:
                stack.enter_context(patch(f"{module}.runs_kernels", lambda x: False))
        for name, value in (variant.cudnn or {}).items():
            setattr(torch.backends.cudnn, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(torch.backends.cudnn, name, value)


def profile(trainer: PartialLabelTrainer, path: Path, times: int = 5) -> None:
    held = list(trainer._runner.graphed_step.recordings.values())[-1]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as watched:
        for _ in range(times):
            held.graph.replay()
        torch.cuda.synchronize()
    events = sorted(watched.key_averages(), key=lambda event: -event.self_device_time_total)
    path.write_text(
        "\n".join(
            f"{e.self_device_time_total / times:9.1f} us {e.count / times:6.1f} x {e.key}"
            for e in events
        )
    )


class _ParallelWeightGradients(torch.autograd.Function):
    """A convolution that computes the gradient of its weights on a separate stream."""

    stream: torch.cuda.Stream
    held: list[Any] = []  # noqa: RUF012

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.given = stride, padding
        return F.conv2d(x, weight, stride=stride, padding=padding)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        stride, padding = ctx.given

        def gradient(*wanted: bool) -> Any:
            rest = (None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, wanted)
            return torch.ops.aten.convolution_backward(grads[0], x, weight, *rest)

        own = _ParallelWeightGradients.stream
        own.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(own):
            grad_weight = gradient(False, True, False)[1]
        _ParallelWeightGradients.held.append((grads[0], x))
        return gradient(True, False, False)[0], grad_weight, None, None


def parallel_weight_gradients(trainer: PartialLabelTrainer) -> None:
    _ParallelWeightGradients.stream = torch.cuda.Stream()
    for module in trainer.model.modules():
        if type(module) is nn.Conv2d:
            module.forward = types.MethodType(  # type: ignore[method-assign]
                lambda self, x: _ParallelWeightGradients.apply(
                    x, self.weight, self.stride[0], self.padding[0]
                ),
                module,
            )
    transfer_gradients = trainer.forward_pass.network.transfer_gradients  # type: ignore[attr-defined]

    def joined() -> None:
        torch.cuda.current_stream().wait_stream(_ParallelWeightGradients.stream)
        _ParallelWeightGradients.held.clear()
        transfer_gradients()

    trainer.forward_pass.network.transfer_gradients = joined  # type: ignore[attr-defined]


ALL = Variant("all weights cast to bfloat16 at once")
VARIANTS = [
    replace(
        ALL,
        what="torch, float32, one operation at a time",
        precision="float32",
        engine="eager",
        kernels=(),
    ),
    replace(ALL, what="bfloat16", engine="eager", kernels=()),
    replace(ALL, what="the step replayed as a CUDA graph", kernels=(), low_weights=False),
    replace(ALL, what="views by our kernels", kernels=("views",), low_weights=False),
    replace(
        ALL,
        what="batch norm, shortcut and ReLU by our kernels",
        kernels=("views", "batch norm"),
        low_weights=False,
    ),
    replace(ALL, what="first and 1×1 convolutions as matrix products", low_weights=False),
    ALL,
    replace(
        ALL,
        what="instead: torch.compile of the network, torch's views",
        engine="compiled",
        kernels=(),
        low_weights=False,
    ),
    replace(
        ALL,
        what="instead: torch.compile of the network, our views",
        engine="compiled",
        kernels=("views",),
        low_weights=False,
    ),
    replace(
        ALL, what="also: weight gradients on a separate stream", change=parallel_weight_gradients
    ),
    replace(ALL, what="also: cudnn.benchmark", cudnn={"benchmark": True}),
    replace(
        ALL,
        what="also: cudnn.benchmark among all algorithms",
        cudnn={"benchmark": True, "benchmark_limit": 0},
    ),
    replace(ALL, what="also: cudnn.deterministic", cudnn={"deterministic": True}),
]

if __name__ == "__main__":
    main()
