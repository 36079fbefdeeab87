"""CUDA graphs: steps and views are recorded once and replayed, without waiting for Python."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ltpll.errors import InputError
from ltpll.training.batches import DrawViews
from ltpll.training.distributed import World, is_loss_of_a_process
from ltpll.training.nonfinite import StepFunction

ENGINES = ("auto", "eager", "captured", "compiled")

# Ordinary calls before recording, for compilation, cuDNN's choices and the optimizer's buffers.
WARM_UP_CALLS = 3


def chosen_engine(engine: str, device: torch.device, world: World | None = None) -> str:
    """Return the engine that "auto" stands for on this device, or check that the named one can run.

    Raises:
        InputError: If the engine is unknown, needs a GPU, or cannot be used by several processes.
    """
    if engine not in ENGINES:
        raise InputError(
            f"Unknown engine {engine!r}: choose 'auto', 'eager', 'captured' or 'compiled'."
        )
    if engine in ("captured", "compiled") and device.type != "cuda":
        raise InputError(f"The engine {engine!r} needs a CUDA device: choose 'auto' or 'eager'.")
    world = world or World()
    if engine == "auto":
        return "captured" if device.type == "cuda" and world.can_be_recorded else "eager"
    compiles = engine == "compiled" and not world.alone
    if compiles or (engine == "captured" and not world.can_be_recorded):
        raise InputError(
            f"Several processes cannot train with the engine {engine!r} here: "
            "choose 'auto' or 'eager'."
        )
    return engine


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    outputs: Any


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Without garbage collection, which could free earlier graphs and so abort the recording."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class GraphedFunction:
    """Calls `function(*inputs)` by replaying a recording; the next call overwrites the result.

    A recording is valid for one `phase` (everything that Python decides inside the function:
    whether targets are refined, which extras are active) and one set of shapes. The first calls run
    normally and count like all others; recording itself executes nothing.
    """

    def __init__(
        self, function: Callable[..., Any], generator: torch.Generator, alone: bool = True
    ) -> None:
        self.function = function
        self.generator = generator
        # With several processes, a thread of NCCL queries the device even during a recording.
        self._mode: dict[str, Any] = {} if alone else {"capture_error_mode": "thread_local"}
        self.recordings: dict[Hashable, _Recording] = {}
        self._n_calls: dict[Hashable, int] = {}
        self._stream = torch.cuda.Stream(generator.device)

    def __call__(self, *inputs: Tensor, phase: Hashable = None) -> Any:
        key = (phase, *(tensor.shape for tensor in inputs))
        recording = self.recordings.get(key)
        if recording is None:
            if self._n_calls.setdefault(key, 0) < WARM_UP_CALLS:
                self._n_calls[key] += 1
                return self._warm_up(inputs)
            recording = self.recordings[key] = self._record(inputs)
        for held, given in zip(recording.inputs, inputs, strict=True):
            held.copy_(given)
        recording.graph.replay()
        return recording.outputs

    def clear(self) -> None:
        """Delete all recordings; the next calls record again."""
        self.recordings.clear()
        self._n_calls.clear()

    def _warm_up(self, inputs: tuple[Tensor, ...]) -> Any:
        """Make an ordinary call on a separate stream, as recording requires."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            outputs = self.function(*inputs)
        torch.cuda.current_stream().wait_stream(self._stream)
        return outputs

    def _record(self, inputs: tuple[Tensor, ...]) -> _Recording:
        held = tuple(tensor.clone() for tensor in inputs)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)  # every replay draws new random numbers
        try:
            with (
                _no_garbage_collection(),
                torch.cuda.graph(graph, stream=self._stream, **self._mode),
            ):
                outputs = self.function(*held)
        except RuntimeError as error:
            raise InputError(
                "This training step cannot be recorded as a CUDA graph, because something in it "
                "synchronises with the device (such as .item() in the model or its views): "
                "choose engine='eager'."
            ) from error
        # torch has just set the generator's offset on the recording's stream. Without this wait, a
        # replay on a busy device could start before that and draw different numbers.
        torch.cuda.current_stream().wait_stream(self._stream)
        return _Recording(graph, held, outputs)


class Runner:
    """Runs training steps and draws views: as replayed CUDA graphs unless the engine is "eager".

    Args:
        step: The training step.
        draw: Draws the views of some inputs, or of only those at some places.
        inputs_of: Copies the inputs of some rows to the device, at least those at some places; this
            is not recorded.
        phase: Returns everything that Python decides inside a step; one graph is recorded for each
            value.
        engine: A chosen engine.
        generator: The generator that steps and views draw from.
        world: The processes that train together.
    """

    def __init__(
        self,
        step: StepFunction,
        draw: DrawViews,
        inputs_of: Callable[[Tensor, Tensor | None], Tensor],
        phase: Callable[[], Hashable],
        engine: str,
        generator: torch.Generator,
        world: World,
    ) -> None:
        self.world = world
        self.step = step
        self.graphed_step: GraphedFunction | None = None
        draw_views: Callable[..., tuple[Tensor, ...]] = draw
        if engine != "eager":
            graphed_step = self.graphed_step = GraphedFunction(
                lambda index, *views: step(index, views), generator, world.alone
            )
            draw_views = GraphedFunction(draw, generator, world.alone)

            def replay_step(index: Tensor, views: Sequence[Tensor]) -> Tensor:
                loss: Tensor = graphed_step(index, *views, phase=phase())
                return loss

            self.step = replay_step
        self.draw: DrawViews = lambda rows, places=None: draw_views(
            inputs_of(rows, places), *(() if places is None else (places,))
        )

    @contextmanager
    def releasing_graphs(self) -> Iterator[None]:
        """Delete graphs in which processes communicate when training ends.

        NCCL cannot shut down before they are gone. After the loss of a process they are kept,
        because deleting a graph that waits for the lost process blocks forever.
        """
        lost = False
        try:
            yield
        except RuntimeError as error:
            lost = is_loss_of_a_process(error)
            raise
        finally:
            if self.graphed_step is not None and not (lost or self.world.alone):
                self.graphed_step.clear()
