"""The engine: a training step recorded once as a CUDA graph and replayed, so that the device never waits for Python."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from ltpll.errors import InputError

Step = Callable[[Tensor, tuple[Tensor, ...]], Tensor]

# Real training steps before recording: compilation, cuDNN's choice of algorithms and the optimizer's buffers happen in them.
WARM_UP = 3


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    index: Tensor
    views: tuple[Tensor, ...]
    loss: Tensor


class CapturedStep:
    """Calls `step(index, views)` by replaying a recording of it.

    A recording holds for one `phase` (whatever Python decides inside the step: targets refined or not, which extras are active) and
    one batch size. The first calls of a phase run as they are and are ordinary training steps; recording itself executes nothing.
    """

    def __init__(self, step: Step, generator: torch.Generator) -> None:
        self.step = step
        self.generator = generator
        self._recordings: dict[Hashable, _Recording] = {}
        self._seen: dict[Hashable, int] = {}
        self._stream = torch.cuda.Stream(generator.device)

    def __call__(self, index: Tensor, views: tuple[Tensor, ...], phase: Hashable) -> Tensor:
        key = (phase, len(index))
        recording = self._recordings.get(key)
        if recording is None:
            if self._seen.setdefault(key, 0) < WARM_UP:
                self._seen[key] += 1
                return self._aside(index, views)
            recording = self._recordings[key] = self._record(index, views)
        recording.index.copy_(index)
        for held, view in zip(recording.views, views, strict=True):
            held.copy_(view)
        recording.graph.replay()
        return recording.loss

    def _aside(self, index: Tensor, views: tuple[Tensor, ...]) -> Tensor:
        """A plain step on a stream of its own, as recording requires of the steps before it."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            loss = self.step(index, views)
        torch.cuda.current_stream().wait_stream(self._stream)
        return loss

    def _record(self, index: Tensor, views: tuple[Tensor, ...]) -> _Recording:
        held_index, held_views = index.clone(), tuple(view.clone() for view in views)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)  # so that every replay draws anew
        try:
            with torch.cuda.graph(graph):
                loss = self.step(held_index, held_views)
        except RuntimeError as error:
            raise InputError(
                "This training step cannot be recorded as a CUDA graph, since something in it waits for the device "
                "(such as .item() in the model): choose engine='eager'."
            ) from error
        return _Recording(graph, held_index, held_views, loss)
