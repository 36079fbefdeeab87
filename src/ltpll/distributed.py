"""Several processes that train one run: each computes its part of every batch, and all hold the same targets, priors and weights."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ltpll.contract import Outputs
from ltpll.errors import InputError

PATIENCE = 25.0  # seconds that a process waits for one that may be dead; long steps are far shorter


class World:
    """Number `rank` of `size` processes; the only one of one process where nothing was said."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

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

    def weight(self, n: int) -> float:
        """What the mean over this process's share of n rows counts in the mean over all processes, so that every row counts the same."""
        start, stop = self._bounds(n, self.rank)
        return (stop - start) * self.size / n

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

    def outputs(self, outputs: Outputs, n: int) -> Outputs:
        """The same of what the network says of a batch."""
        if self.alone:
            return outputs
        return Outputs(tuple(self.rows(z, n) for z in outputs.logits), tuple(self.rows(f, n) for f in outputs.features))

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

    def shared(self, model: nn.Module) -> nn.Module:
        """The model so that its gradients are the mean over all processes; it starts from the first one's weights."""
        if self.alone:
            return model
        return DistributedDataParallel(model)

    def agreed(self, value: Any) -> Any:
        """What the first process says, on all of them."""
        if self.alone:
            return value
        held = [value]
        dist.broadcast_object_list(held, src=0)
        return held[0]

    def wait(self) -> None:
        """Until all processes are here."""
        if not self.alone:
            dist.barrier()


@contextmanager
def world_of_torchrun(device: str) -> Iterator[tuple[World, str]]:
    """The world that `torchrun` started this process in, and the device that is this process's own; alone without torchrun."""
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
    try:
        yield World(rank, size), device
    finally:
        dist.destroy_process_group()


def is_loss_of_a_process(error: RuntimeError) -> bool:
    """Whether an error says that another process did not answer; what gloo raises has no type of its own."""
    signs = ("gloo", "connection closed", "connection reset", "timed out", "nccl", "socket")
    return isinstance(error, dist.DistError) or any(sign in str(error).lower() for sign in signs)
