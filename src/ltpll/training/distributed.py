"""Several processes that train one run: each computes its part of every batch, and all hold the same targets, priors and weights."""

from __future__ import annotations

import datetime
import inspect
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, overload

import torch
import torch.distributed as dist
import torch.distributed.nn
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ltpll.errors import InputError
from ltpll.interfaces import Outputs
from ltpll.training.peer_failure import Lifeline, give_up

PATIENCE = 25.0  # seconds that a process waits within a step for one that may be dead; long steps are far shorter
MORE_PATIENCE = 3600.0  # the same where one of them has work of its own: reading, judging, writing
EVERY = 1.0  # seconds or so between two exchanges of signals


class World:
    """Number `rank` of `size` processes; the only one of one process where nothing was said.

    What is agreed on goes through the group `control`, which need not be that of the gradients.
    """

    def __init__(self, rank: int = 0, size: int = 1, control: dist.ProcessGroup | None = None) -> None:
        self.rank, self.size = rank, size
        self._control = control
        self.lifeline: Lifeline | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> World:
        return self  # a layer that has one can be copied; a group of processes cannot

    @property
    def alone(self) -> bool:
        return self.size == 1

    @property
    def first(self) -> bool:
        """The one that writes."""
        return self.rank == 0

    def part(self, n: int) -> slice:
        """The share of n rows that this process computes; shares differ by one row at most, and none is left out or counted twice."""
        return slice(*self._bounds(n, self.rank))

    def _bounds(self, n: int, rank: int) -> tuple[int, int]:
        return n * rank // self.size, n * (rank + 1) // self.size

    def rows(self, part: Tensor, n: int) -> Tensor:
        """All n rows on every process, in order, from the shares of all."""
        if self.alone:
            return part
        bounds = [self._bounds(n, rank) for rank in range(self.size)]
        sizes = [stop - start for start, stop in bounds]
        # Shares of one size, since that is all that gloo can gather.
        padded = part.new_zeros((max(sizes), *part.shape[1:]))
        padded[: len(part)] = part
        found = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(found, padded)
        return torch.cat([one[:size] for one, size in zip(found, sizes, strict=True)])

    def outputs(self, outputs: Outputs, sizes: Sequence[int]) -> Outputs:
        """What the network says of all rows, from what it says of the shares; `sizes` has the number of rows of each view.

        Every process can then compute the loss of the whole batch. Gradients come back to the rows that are this process's own, so
        many times as there are processes, since DistributedDataParallel takes the mean over them where the sum is wanted.
        """
        if self.alone:
            return outputs
        parts = (*outputs.logits, *outputs.features)
        if len(set(sizes)) == 1:  # sent as one, since what takes time are the messages
            whole = _Gather.apply(torch.cat(parts, dim=1), self, sizes[0]).split([part.shape[1] for part in parts], dim=1)
        else:
            whole = tuple(_Gather.apply(part, self, n) for part, n in zip(parts, (*sizes, *sizes), strict=True))
        n_views = len(outputs.logits)
        return Outputs(tuple(whole[:n_views]), tuple(whole[n_views:]))

    def views(self, views: Sequence[Tensor], n: int) -> Sequence[Tensor]:
        """The same of views, which are not sent around before somebody looks at them."""
        return views if self.alone else _Gathered(views, self, n)

    def shares(self, views: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], list[int]]:
        """This process's share of each of the views, and how many rows each has in all."""
        if isinstance(views, _Gathered):
            return tuple(views.own), [views.n] * len(views)
        return tuple(view[self.part(len(view))] for view in views), [len(view) for view in views]

    def total(self, value: Tensor) -> Tensor:
        """The sum over all processes."""
        if not self.alone:
            value = value.clone()
            dist.all_reduce(value)
        return value

    def summed(self, value: Tensor) -> Tensor:
        """The same inside a loss: gradients of all processes come back through it."""
        if self.alone:
            return value
        found: Tensor = dist.nn.functional.all_reduce(value)
        return found

    @property
    def can_be_recorded(self) -> bool:
        """Whether what the processes say to each other can be part of a CUDA graph."""
        return self.alone or dist.get_backend() == "nccl"

    def mean_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Make the gradients the mean over all processes, with one message for all of a kind.

        For steps that are recorded, which DistributedDataParallel's hooks are not made for. It sends while the backward pass still
        goes on; here the message waits for its end.
        """
        if self.alone:
            return
        kinds: dict[torch.dtype, list[tuple[nn.Parameter, Tensor]]] = {}
        for parameter in parameters:
            if parameter.grad is not None:
                kinds.setdefault(parameter.dtype, []).append((parameter, parameter.grad))
        for dtype, pairs in kinds.items():
            flat = torch.empty(sum(one.numel() for one, _ in pairs), dtype=dtype, device=pairs[0][0].device)
            parts = zip(pairs, flat.split([one.numel() for one, _ in pairs]), strict=True)
            # In each parameter's order in memory, as the fused optimizer wants it.
            means = [part.as_strided(one.shape, torch.empty_like(one).stride(), part.storage_offset()) for (one, _), part in parts]
            torch._foreach_copy_(means, [gradient for _, gradient in pairs])
            dist.all_reduce(flat)
            flat /= self.size
            for (one, _), mean in zip(pairs, means, strict=True):
                one.grad = mean

    def shared(self, model: nn.Module) -> nn.Module:
        """The model so that its gradients are the mean over all processes; it starts from the first one's weights."""
        if self.alone:
            return model
        # Statistics of batch norm are put together at the end of every epoch; sending them before each pass would change what an
        # earlier pass of the same step still needs. What says so has got another name in newer versions of torch.
        known = inspect.signature(DistributedDataParallel).parameters
        said = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        options: dict[str, Any] = {said: False}
        # A convolution of one pixel has weights whose order in memory can be described in two ways, of which torch warns in vain.
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
        return DistributedDataParallel(model, **options)

    def give(self, model: nn.Module) -> None:
        """The first process's weights and statistics to all."""
        if not self.alone:
            for tensor in (*model.parameters(), *model.buffers()):
                dist.broadcast(tensor.detach(), src=0)

    def put_together(self, network: nn.Module, parts: Iterable[nn.Module], targets: Tensor) -> None:
        """One state on all processes: the mean of the network's statistics, and for all else, which all compute alike, the first one's."""
        if self.alone:
            return
        for buffer in network.buffers():
            if buffer.is_floating_point():
                dist.all_reduce(buffer)
                buffer /= self.size
        for tensor in [targets, *(tensor for part in parts for tensor in (*part.parameters(), *part.buffers()))]:
            dist.broadcast(tensor.detach(), src=0)

    def largest(self, mine: int) -> int:
        """The largest number that any process has."""
        if self.alone:
            return mine
        said = [mine] * self.size
        dist.all_gather_object(said, mine, group=self._control)
        return max(said)

    def agreed(self, value: Any) -> Any:
        """What the first process says, on all of them."""
        if self.alone:
            return value
        held = [value]
        dist.broadcast_object_list(held, src=0, group=self._control)
        return held[0]

    def leave(self) -> None:
        """Called when this process has nothing left to do with others but to wait for them, and is not missed if it dies."""
        if self.lifeline:
            self.lifeline.leave()

    def wait(self) -> None:
        """Until all processes are here."""
        if not self.alone:
            dist.barrier(group=self._control)


class Exchange:
    """Lets all processes know what one of them was told, about once a second, and after the same call everywhere."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._left, self._calls, self._began = 1, 0, time.monotonic()

    def __call__(self, mine: int) -> int:
        """The largest number that any process has; 0 between two exchanges. Called by all of them equally often."""
        if self._world.alone:
            return mine
        self._calls += 1
        self._left -= 1
        if self._left > 0:
            return 0
        number = self._world.largest(mine)
        # As many calls as the first process makes in that time; not many more than before, since the first steps may be slow or fast.
        pace = self._calls / max(time.monotonic() - self._began, 1e-9)
        self._left = self._world.agreed(max(1, min(int(pace * EVERY), 2 * self._calls)))
        self._calls, self._began = 0, time.monotonic()
        return number


class _Gather(torch.autograd.Function):
    """`World.rows` with gradients."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, world: World, n: int) -> Tensor:
        ctx.world, ctx.n = world, n
        return world.rows(part, n)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0][ctx.world.part(ctx.n)] * ctx.world.size, None, None


class _Gathered(Sequence[Tensor]):
    """Views of all rows, each gathered when it is looked at."""

    def __init__(self, own: Sequence[Tensor], world: World, n: int) -> None:
        self.own, self.n, self._world = own, n, world
        self._whole: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self.own)

    @overload
    def __getitem__(self, which: int) -> Tensor: ...

    @overload
    def __getitem__(self, which: slice) -> Sequence[Tensor]: ...

    def __getitem__(self, which: int | slice) -> Tensor | Sequence[Tensor]:
        if isinstance(which, slice):
            return _Gathered(self.own[which], self._world, self.n)
        if which not in self._whole:
            self._whole[which] = self._world.rows(self.own[which], self.n)
        return self._whole[which]


@contextmanager
def world_of_torchrun(device: str, say: Callable[[str], None]) -> Iterator[tuple[World, str]]:
    """The world that `torchrun` started this process in, and the device that is this process's own; alone without torchrun.

    A process that loses another one `say`s so and ends with status 1, also where it hangs because of that.
    """
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield World(), device
        return
    rank, size, local = (int(os.environ.get(name, 0)) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    on_cuda = device.startswith("cuda")
    if on_cuda:
        if local >= torch.cuda.device_count():
            raise InputError(
                f"There are {torch.cuda.device_count()} GPUs here, but torchrun started {local + 1} processes or more: start fewer."
            )
        device = f"cuda:{local}"
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if on_cuda else "gloo", timeout=datetime.timedelta(seconds=PATIENCE))
    lifeline = None
    try:
        # On the processors, so that nobody waits for a GPU.
        world = World(rank, size, dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=MORE_PATIENCE)))
        if size > 1:
            lifeline = world.lifeline = Lifeline(rank, size, os.environ["MASTER_ADDR"], world.agreed, say)
        yield world, device
        world.leave()
    except BaseException as error:
        if size > 1 and _comes_from_a_loss(error):
            if lifeline is None:
                give_up(rank, size, say)
            lifeline.end()
        if lifeline is not None:
            lifeline.fail()
        raise
    finally:
        dist.destroy_process_group()


def _comes_from_a_loss(error: BaseException | None) -> bool:
    """Whether it was raised because of the loss of a process, or while that was being dealt with: torchrun tells the others to end."""
    while error is not None:
        if isinstance(error, RuntimeError) and is_loss_of_a_process(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def is_loss_of_a_process(error: RuntimeError) -> bool:
    """Whether an error says that another process did not answer; what gloo raises has no type of its own."""
    signs = ("gloo", "connection closed", "connection reset", "timed out", "nccl", "socket")
    text = str(error).lower()
    # What NCCL calls so is a GPU that two processes were given, or the like.
    return "invalid usage" not in text and (isinstance(error, dist.DistError) or any(sign in text for sign in signs))
