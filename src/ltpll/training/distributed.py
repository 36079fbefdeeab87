"""Distributed training: several processes share every batch and hold the same state."""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ltpll.errors import InputError
from ltpll.formatting import counted
from ltpll.interfaces import Outputs
from ltpll.training.signals import DelayedSignals

# Within a step, a process waits for another so long; steps are far shorter.
STEP_TIMEOUT = datetime.timedelta(seconds=25)
# The same where one process may read, evaluate or write meanwhile.
CONTROL_TIMEOUT = datetime.timedelta(hours=1)
SIGNAL_INTERVAL = 1.0  # approximate seconds between two exchanges of signals
MOMENT = 1.0  # seconds by which the process that is to blame exits first, so that torchrun names it


class World:
    """The processes that train together, seen from one of them; by default a single process.

    Decisions are exchanged in the process group `control`, which may differ from the group for
    gradients.
    """

    def __init__(
        self, rank: int = 0, size: int = 1, control: dist.ProcessGroup | None = None
    ) -> None:
        self.rank, self.size = rank, size
        self._control = control

    @property
    def alone(self) -> bool:
        """Whether there is only one process."""
        return self.size == 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def own_rows(self, n: int) -> slice:
        """This process's share of n rows; shares differ by at most one row."""
        return slice(*self._bounds(n, self.rank))

    def _bounds(self, n: int, rank: int) -> tuple[int, int]:
        return n * rank // self.size, n * (rank + 1) // self.size

    def gather_rows(self, part: Tensor, n: int) -> Tensor:
        """Gather the shares of all processes: returns all n rows, in order, on every process."""
        if self.alone:
            return part
        bounds = [self._bounds(n, rank) for rank in range(self.size)]
        sizes = [stop - start for start, stop in bounds]
        # Padded to equal sizes, because gloo gathers nothing else.
        padded = part.new_zeros((max(sizes), *part.shape[1:]))
        padded[: len(part)] = part
        found = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(found, padded)
        return torch.cat([one[:size] for one, size in zip(found, sizes, strict=True)])

    def gather_outputs(self, outputs: Outputs, n: int) -> Outputs:
        """Gather the outputs for n rows, from which every process computes the whole loss.

        Gradients flow back to this process's own rows, multiplied by the number of processes,
        because gradients are averaged where the sum is needed.
        """
        if self.alone or not outputs.logits:
            return outputs
        parts, n_views = (*outputs.logits, *outputs.features), len(outputs.logits)
        # One message for all, because the number of messages determines the time.
        gathered = _Gather.apply(torch.cat(parts, dim=1), self, n)
        whole = gathered.split([part.shape[1] for part in parts], dim=1)
        return Outputs(tuple(whole[:n_views]), tuple(whole[n_views:]))

    def gather_features(self, outputs: Outputs, n: int) -> Outputs:
        """Gather the features for n rows without gradients, and leave out the logits."""
        if self.alone:
            return outputs
        whole = self.gather_rows(torch.cat(outputs.features, dim=1), n)
        return Outputs((), whole.chunk(len(outputs.features), dim=1))

    def whole_views(self, views: Sequence[Tensor], n: int) -> Sequence[Tensor]:
        """Views of the whole batch, which are gathered only when they are accessed."""
        return views if self.alone else _Gathered(views, self, n)

    def own_shares(self, views: Sequence[Tensor]) -> tuple[Sequence[Tensor], int]:
        """This process's share of each view, and the total number of rows of each."""
        if isinstance(views, _Gathered):
            return views.own, views.n
        n = len(views[0]) if views else 0
        return [view[self.own_rows(n)] for view in views], n

    def sum_over_all(self, value: Tensor) -> Tensor:
        """The sum over all processes."""
        if not self.alone:
            value = value.clone()
            dist.all_reduce(value)
        return value

    @property
    def can_be_recorded(self) -> bool:
        """Whether communication between the processes can be part of a CUDA graph."""
        return self.alone or dist.get_backend() == "nccl"

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace gradients by their mean over all processes, with one message per dtype.

        Unlike DistributedDataParallel, this can be recorded as part of a CUDA graph.
        """
        kinds: dict[torch.dtype, list[tuple[nn.Parameter, Tensor]]] = {}
        for parameter in parameters:
            if parameter.grad is not None:
                kinds.setdefault(parameter.dtype, []).append((parameter, parameter.grad))
        for dtype, pairs in kinds.items():
            sizes = [one.numel() for one, _ in pairs]
            flat = torch.empty(sum(sizes), dtype=dtype, device=pairs[0][0].device)
            # In the memory layout of each parameter, as the fused optimizer requires.
            means = [
                part.as_strided(one.shape, torch.empty_like(one).stride(), part.storage_offset())
                for (one, _), part in zip(pairs, flat.split(sizes), strict=True)
            ]
            torch._foreach_copy_(means, [gradient for _, gradient in pairs])
            dist.all_reduce(flat)
            flat /= self.size
            for (one, _), mean in zip(pairs, means, strict=True):
                one.grad = mean

    def broadcast_weights(self, model: nn.Module) -> None:
        """Copy the first process's weights and buffers to all processes."""
        if not self.alone:
            for tensor in (*model.parameters(), *model.buffers()):
                dist.broadcast(tensor.detach(), src=0)

    def synchronise_state(
        self, network: nn.Module, parts: Iterable[nn.Module], targets: Tensor
    ) -> None:
        """Average the network's buffers, and copy everything else from the first process."""
        if self.alone:
            return
        for buffer in network.buffers():
            if buffer.is_floating_point():
                dist.all_reduce(buffer)
                buffer /= self.size
        dist.broadcast(targets, src=0)
        for part in parts:
            self.broadcast_weights(part)

    def largest_of_all(self, mine: int) -> int:
        """The largest of the numbers of all processes."""
        numbers = [mine] * self.size
        dist.all_gather_object(numbers, mine, group=self._control)
        return max(numbers)

    def value_of_first_process(self, value: Any) -> Any:
        """Return the first process's value on all processes."""
        if self.alone:
            return value
        held = [value]
        dist.broadcast_object_list(held, src=0, group=self._control)
        return held[0]

    def wait_for_all(self) -> None:
        """Wait until all processes have arrived here."""
        if not self.alone:
            dist.barrier(group=self._control)


_current = World()


def current_world() -> World:
    """The processes of the surrounding `world_of_torchrun` block, or this process alone."""
    return _current


class SharedSignals:
    """Tells all processes about once per second which signal one of them received.

    All stop after the same step.
    """

    def __init__(self, signals: DelayedSignals, world: World) -> None:
        self._signals, self._world = signals, world
        self._remaining, self._calls, self._started = 1, 0, time.monotonic()

    def __call__(self) -> bool:
        """Whether any process has a pending signal; all processes must call this equally often."""
        if self._world.alone:
            return self._signals.pending() > 0
        self._calls += 1
        self._remaining -= 1
        if self._remaining > 0:
            return False
        number = self._world.largest_of_all(self._signals.pending())
        # As many calls as the first process makes in the interval, but at most twice as many as
        # before: the first steps may be unusual.
        pace = self._calls / max(time.monotonic() - self._started, 1e-9)
        calls = max(1, min(int(pace * SIGNAL_INTERVAL), 2 * self._calls))
        self._remaining = self._world.value_of_first_process(calls)
        self._calls, self._started = 0, time.monotonic()
        self._signals.receive(number)
        # A signal that arrived meanwhile waits for the next call: all stop after the same step.
        return number > 0


class _Gather(torch.autograd.Function):
    """`World.gather_rows` with gradients."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, world: World, n: int) -> Tensor:
        ctx.world, ctx.n = world, n
        return world.gather_rows(part, n)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0][ctx.world.own_rows(ctx.n)] * ctx.world.size, None, None


class _Gathered(Sequence[Tensor]):
    """Views of all rows, each gathered when it is accessed."""

    def __init__(self, own: Sequence[Tensor], world: World, n: int) -> None:
        self.own, self.n, self._world = own, n, world
        self._whole: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self.own)

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            return _Gathered(self.own[which], self._world, self.n)
        if which not in self._whole:
            self._whole[which] = self._world.gather_rows(self.own[which], self.n)
        return self._whole[which]


@contextmanager
def world_of_torchrun(device: str, say: Callable[[str], None]) -> Iterator[tuple[World, str]]:
    """Join the processes that `torchrun` started, and yield them with this process's device.

    Inside the block, `current_world` returns these processes; without torchrun, it is this process
    alone. If another process is lost, this one reports it with `say` and exits with status 1. One
    that waits for its GPU cannot do that: torchrun kills it after 30 seconds.
    """
    global _current
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield World(), device
        return
    rank, size, local = (
        int(os.environ.get(name, 0)) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    )
    on_cuda = device.startswith("cuda")
    if on_cuda:
        if local >= torch.cuda.device_count():
            raise InputError(
                f"torchrun started at least {local + 1} processes for "
                f"{counted(torch.cuda.device_count(), 'GPU')}: start fewer processes."
            )
        device = f"cuda:{local}"
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if on_cuda else "gloo", timeout=STEP_TIMEOUT)
    try:
        # Decisions are exchanged between CPUs, so that nothing waits for a GPU.
        _current = World(rank, size, dist.new_group(backend="gloo", timeout=CONTROL_TIMEOUT))
        yield _current, device
    except BaseException as error:
        if size > 1 and _comes_from_a_loss(error):
            with suppress(BaseException):  # torchrun may terminate this process meanwhile
                say(
                    f"Process {rank} of {size} has lost another process, which died or hangs: "
                    "look at its last message, and rerun the command to resume."
                )
                sys.stdout.flush()
                time.sleep(MOMENT)
            # Nothing is cleaned up: work on the GPU may wait for the lost process forever.
            os._exit(1)
        raise
    finally:
        _current = World()
        dist.destroy_process_group()


def _comes_from_a_loss(error: BaseException | None) -> bool:
    """Whether an error was caused by the loss of a process, or raised while handling one."""
    while error is not None:
        if isinstance(error, RuntimeError) and is_loss_of_a_process(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def is_loss_of_a_process(error: RuntimeError) -> bool:
    """Whether another process did not answer; gloo's errors have no type of their own."""
    signs = ("gloo", "connection closed", "connection reset", "timed out", "nccl", "socket")
    text = str(error).lower()
    # NCCL reports, for example, a GPU that is used by two processes as invalid usage.
    lost = isinstance(error, dist.DistError) or any(sign in text for sign in signs)
    return lost and "invalid usage" not in text
