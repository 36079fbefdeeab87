"""The engine: training steps and views recorded once as CUDA graphs and replayed, so that the device never waits for Python."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ltpll.errors import InputError
from ltpll.training.distributed import World, is_loss_of_a_process

ENGINES = ("auto", "eager", "captured", "compiled")

# Real calls before recording: compilation, cuDNN's choice of algorithms and the optimizer's buffers happen in them.
WARM_UP = 3


def chosen_engine(engine: str, device: torch.device, world: World | None = None) -> str:
    """The engine that "auto" stands for on this device, and in this world; one that cannot run there is refused."""
    if engine not in ENGINES:
        raise InputError(f"There is no engine {engine!r}: choose 'auto', 'eager', 'captured' or 'compiled'.")
    if engine in ("captured", "compiled") and device.type != "cuda":
        raise InputError(f"The engine {engine!r} needs a CUDA device: choose 'auto' or 'eager'.")
    world = world or World()
    if not world.alone and (engine == "compiled" or (engine == "captured" and not world.can_be_recorded)):
        raise InputError(f"Several processes cannot train with the engine {engine!r} here: choose 'auto' or 'eager'.")
    return ("captured" if device.type == "cuda" and world.can_be_recorded else "eager") if engine == "auto" else engine


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    outputs: Any


@contextmanager
def alongside(stream: torch.cuda.Stream | None) -> Iterator[None]:
    """Work that nothing on the current stream waits for before the end of the step, beside it on another; without one, just there.

    Whatever the work reads has to stay in memory until the current stream waits for the other one.
    """
    if stream is None:
        yield
        return
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Without Python's garbage collection, which may drop an earlier training's graphs, and so end a recording that is under way."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Captured:
    """Calls `work(*inputs)` by replaying a recording of it; the result is overwritten by the next call.

    A recording holds for one `phase` (whatever Python decides inside the work: targets refined or not, which extras are active) and
    one set of shapes. The first calls run as they are and count like all others; recording itself executes nothing.
    """

    def __init__(self, work: Callable[..., Any], generator: torch.Generator, alone: bool = True) -> None:
        self.work = work
        self.generator = generator
        # Where processes talk to each other a thread of NCCL's asks the device how far it is, also during a recording.
        self._mode: dict[str, Any] = {} if alone else {"capture_error_mode": "thread_local"}
        self._recordings: dict[Hashable, _Recording] = {}
        self._seen: dict[Hashable, int] = {}
        self._stream = torch.cuda.Stream(generator.device)

    def __call__(self, *inputs: Tensor, phase: Hashable = None) -> Any:
        key = (phase, *(one.shape for one in inputs))
        recording = self._recordings.get(key)
        if recording is None:
            if self._seen.setdefault(key, 0) < WARM_UP:
                self._seen[key] += 1
                return self._aside(inputs)
            recording = self._recordings[key] = self._record(inputs)
        for held, given in zip(recording.inputs, inputs, strict=True):
            held.copy_(given)
        recording.graph.replay()
        return recording.outputs

    def forget(self) -> None:
        """Drop all recordings; the next calls make them anew."""
        self._recordings.clear()
        self._seen.clear()

    def _aside(self, inputs: tuple[Tensor, ...]) -> Any:
        """A plain call on a stream of its own, as recording requires of the calls before it."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            outputs = self.work(*inputs)
        torch.cuda.current_stream().wait_stream(self._stream)
        return outputs

    def _record(self, inputs: tuple[Tensor, ...]) -> _Recording:
        held = tuple(one.clone() for one in inputs)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)  # so that every replay draws anew
        try:
            with _nothing_collected(), torch.cuda.graph(graph, stream=self._stream, **self._mode):
                outputs = self.work(*held)
        except RuntimeError as error:
            raise InputError(
                "This training step cannot be recorded as a CUDA graph, since something in it waits for the device "
                "(such as .item() in the model or its views): choose engine='eager'."
            ) from error
        # The numbers that a replay draws depend on where the generator stands, which torch keeps on the device and has just set for the
        # recording, on the stream of the recording; on a busy device a replay could otherwise come before that, and draw others.
        torch.cuda.current_stream().wait_stream(self._stream)
        return _Recording(graph, held, outputs)


@contextmanager
def dropped_behind(recorded: Captured | None, world: World) -> Iterator[None]:
    """Recordings in which processes talk to each other do not outlive a training: until they are gone NCCL cannot end.

    But one that waits for a process which is lost would never be gone.
    """
    lost = False
    try:
        yield
    except RuntimeError as error:
        lost = is_loss_of_a_process(error)
        raise
    finally:
        if recorded is not None and not (lost or world.alone):
            recorded.forget()
